"""An ext4 disk as bytes: its journal replayed, its files read, its counts checked.

Only what one block group of 4 KiB blocks with extents and without checksums needs.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass

BLOCK = 4096
ROOT_INO, JOURNAL_INO, FIRST_INO = 2, 8, 11
INCOMPAT_RECOVER = 0x4
INODE_BYTES = 128
_SUPER = 1024
_JOURNAL_MAGIC = 0xC03B3998
_DESCRIPTOR, _COMMIT = 1, 2
_ESCAPE, _SAME_UUID, _LAST_TAG = 1, 2, 8
_EXTENT_MAGIC = 0xF30A
_UNWRITTEN = 0x8000
_S_IFMT, _S_IFDIR = 0o170000, 0o040000


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction in the log: its sequence number, and block -> contents."""

    sequence: int
    blocks: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class Extent:
    """Blocks of a file that lie together."""

    first: int
    length: int
    start: int
    written: bool


@dataclass(frozen=True, slots=True)
class Inode:
    """A row of the inode table. `leaf` is the block its extents are in, 0 for the inode itself."""

    number: int
    mode: int
    links: int
    size: int
    blocks: int
    mtime: int
    dtime: int
    extents: tuple[Extent, ...]
    leaf: int

    @property
    def is_directory(self) -> bool:
        return self.mode & _S_IFMT == _S_IFDIR

    def map(self, block: int) -> Extent | None:
        """The extent that holds a block of the file."""
        holding = (e for e in self.extents if e.first <= block < e.first + e.length)
        return next(holding, None)


class Disk:
    """The disk at one moment."""

    def __init__(self, image: bytes) -> None:
        self.image = image
        self.nr_inodes, self.nr_blocks = self._u32(_SUPER), self._u32(_SUPER + 4)
        self.incompat = self._u32(_SUPER + 96)
        self.block_bitmap, self.inode_bitmap, self.inode_table = struct.unpack_from(
            "<III", image, BLOCK
        )
        self.free_blocks, self.free_inodes, self.directories = struct.unpack_from(
            "<HHH", image, BLOCK + 12
        )

    def _u32(self, offset: int) -> int:
        return int(struct.unpack_from("<I", self.image, offset)[0])

    def block(self, number: int) -> bytes:
        return self.image[number * BLOCK : (number + 1) * BLOCK]

    # --- the journal -----------------------------------------------------------------------------

    def log(self) -> list[Commit]:
        """What a recovery would find, oldest first."""
        journal = self.inode(JOURNAL_INO)
        at = [e.start + n for e in journal.extents for n in range(e.length)]
        length, first, sequence, here = struct.unpack_from(">4I", self.block(at[0]), 16)
        if not here:
            return []
        commits: list[Commit] = []
        pending: dict[int, bytes] = {}

        def following(place: int) -> int:
            return place + 1 if place + 1 < length else int(first)

        while True:
            block = self.block(at[here])
            magic, kind, number = struct.unpack_from(">3I", block)
            if magic != _JOURNAL_MAGIC or number != sequence:
                return commits
            if kind == _COMMIT:
                commits.append(Commit(sequence, pending))
                pending = {}
                sequence += 1
            for home, flags in _tags(block) if kind == _DESCRIPTOR else ():
                here = following(here)
                data = self.block(at[here])
                if flags & _ESCAPE:
                    data = struct.pack(">I", _JOURNAL_MAGIC) + data[4:]
                pending[home] = data
            here = following(here)

    def replayed(self) -> Disk:
        """The disk as a recovery leaves it."""
        image = bytearray(self.image)
        for commit in self.log():
            for home, data in commit.blocks.items():
                image[home * BLOCK : (home + 1) * BLOCK] = data
        return Disk(bytes(image))

    # --- files -----------------------------------------------------------------------------------

    def inode(self, number: int) -> Inode:
        offset = self.inode_table * BLOCK + (number - 1) * INODE_BYTES
        raw = self.image[offset : offset + INODE_BYTES]
        mode, _, size, _, _, mtime, dtime, _, links, blocks = struct.unpack_from("<HHIIIIIHHI", raw)
        extents: tuple[Extent, ...] = ()
        leaf = 0
        if links:
            extents, leaf = self._extents(raw[40:100])
        return Inode(number, mode, links, size, blocks, mtime, dtime, extents, leaf)

    def _extents(self, node: bytes) -> tuple[tuple[Extent, ...], int]:
        magic, entries, most, depth = struct.unpack_from("<4H", node)
        assert (magic, entries <= most) == (_EXTENT_MAGIC, True)
        if depth:
            assert (entries, depth) == (1, 1)
            first, leaf = struct.unpack_from("<II", node, 12)
            extents, below = self._extents(self.block(leaf))
            assert (extents[0].first, below) == (first, 0)
            return extents, leaf
        found = []
        for number in range(entries):
            first, length, _, start = struct.unpack_from("<IHHI", node, 12 + 12 * number)
            written = length <= _UNWRITTEN
            found.append(Extent(first, length - (0 if written else _UNWRITTEN), start, written))
        assert all(a.first + a.length <= b.first for a, b in itertools.pairwise(found))
        return tuple(found), 0

    def read(self, inode: Inode) -> bytes:
        """The contents; holes and what was never written are zero."""
        data = bytearray()
        for number in range(-(-inode.size // BLOCK)):
            extent = inode.map(number)
            if extent is None or not extent.written:
                data += bytes(BLOCK)
            else:
                data += self.block(extent.start + number - extent.first)
        return bytes(data[: inode.size])

    def tail(self, inode: Inode) -> bytes:
        """What the last block holds behind the end of the file."""
        extent = inode.map(inode.size // BLOCK)
        if extent is None or not extent.written:
            return b""
        block = self.block(extent.start + inode.size // BLOCK - extent.first)
        return block[inode.size % BLOCK :]

    def listdir(self, inode: Inode) -> dict[str, int]:
        """name -> inode number."""
        found: dict[str, int] = {}
        data = self.read(inode)
        for base in range(0, len(data), BLOCK):
            at = 0
            while at < BLOCK:
                number, length, name_length = struct.unpack_from("<IHB", data, base + at)
                assert length % 4 == 0, (base + at, length)
                assert length >= 8 + name_length, (base + at, length)
                if number:
                    name = data[base + at + 8 : base + at + 8 + name_length].decode()
                    assert name not in found, name
                    found[name] = number
                at += length
            assert at == BLOCK
        return found

    def files(self) -> dict[str, Inode]:
        """The root directory's files by name."""
        entries = self.listdir(self.inode(ROOT_INO))
        inodes = {name: self.inode(number) for name, number in entries.items()}
        return {name: inode for name, inode in inodes.items() if not inode.is_directory}

    def contents(self) -> dict[str, bytes]:
        return {name: self.read(inode) for name, inode in self.files().items()}

    # --- what has to be consistent ---------------------------------------------------------------

    def problems(self) -> list[str]:
        """What fsck would complain of."""
        found: list[str] = []
        used_inodes = {ino for ino in range(1, self.nr_inodes + 1) if self._bit(3, ino - 1)}
        live = [self.inode(ino) for ino in sorted(used_inodes) if ino >= FIRST_INO]
        owners = dict.fromkeys(range(self.inode_table + self.nr_inodes * INODE_BYTES // BLOCK), 0)
        for inode in [self.inode(ROOT_INO), self.inode(JOURNAL_INO), *live]:
            blocks = [e.start + n for e in inode.extents for n in range(e.length)]
            blocks += [inode.leaf] if inode.leaf else []
            for block in blocks:
                if block in owners:
                    found.append(f"block {block} of inode {inode.number} is {owners[block]}'s")
                owners[block] = inode.number
            if len(blocks) * 8 != inode.blocks:
                found.append(f"inode {inode.number} counts {inode.blocks} for {len(blocks)}")
        found += [
            f"block {block} is marked {self._bit(2, block)}"
            for block in range(self.nr_blocks)
            if self._bit(2, block) != (block in owners)
        ]
        if self.free_blocks != self.nr_blocks - len(owners):
            found.append(f"{self.free_blocks} free blocks of {self.nr_blocks - len(owners)}")
        if self.free_inodes != self.nr_inodes - len(used_inodes):
            found.append(f"{self.free_inodes} free inodes")
        named = set(self.listdir(self.inode(ROOT_INO)).values()) - {ROOT_INO}
        if named != {inode.number for inode in live}:
            found.append(f"named {named}, marked {[inode.number for inode in live]}")
        found += [f"inode {i.number} has no links" for i in live if not i.links]
        return found

    def _bit(self, block: int, number: int) -> bool:
        return bool(self.image[block * BLOCK + number // 8] >> number % 8 & 1)

    def without_journal(self) -> bytes:
        """The image for e2fsck, which refuses a journal this small. The log has to be replayed."""
        image = bytearray(self.image)
        struct.pack_into("<III", image, _SUPER + 92, 0, self.incompat & ~INCOMPAT_RECOVER, 0)
        struct.pack_into("<I", image, _SUPER + 224, 0)
        journal = self.inode(JOURNAL_INO)
        offset = self.inode_table * BLOCK + (JOURNAL_INO - 1) * INODE_BYTES
        image[offset : offset + INODE_BYTES] = bytes(INODE_BYTES)
        free = self.free_blocks
        for extent in journal.extents:
            free += extent.length
            for block in range(extent.start, extent.start + extent.length):
                image[self.block_bitmap * BLOCK + block // 8] &= ~(1 << block % 8)
        struct.pack_into("<H", image, BLOCK + 12, free)
        struct.pack_into("<II", image, _SUPER + 12, free, self.free_inodes)
        return bytes(image)


def _tags(descriptor: bytes) -> list[tuple[int, int]]:
    """(block, flags) of every tag of a descriptor block."""
    tags, at = [], 12
    while True:
        block, _, flags = struct.unpack_from(">IHH", descriptor, at)
        tags.append((block, flags))
        at += 8 if flags & _SAME_UUID else 24
        if flags & _LAST_TAG:
            return tags
