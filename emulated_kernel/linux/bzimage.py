"""A distribution's vmlinuz and the compressed vmlinux in it (arch/x86/boot/header.S).

The boot protocol's header says where the payload lies; its first bytes say how it is compressed,
its last four how long it is unpacked. The image ends with its CRC-32, which tells of damage where
the way of packing does not. Left out: lzo, kernels packed into an EFI stub of their own.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable

from emulated_kernel.errors import ImageError

UNPACKED_LIMIT = 256 << 20
_DICTIONARY_LIMIT = 256 << 20
_ELF = b"\x7fELF"
_SECTOR = 512
_BOOT_FLAG, _HEADER_MAGIC = 0xAA55, b"HdrS"
_PAYLOAD_PROTOCOL, _XLOADFLAGS_PROTOCOL = 0x208, 0x20C
_XLF_KERNEL_64 = 1
_LZ4_BLOCK = 8 << 20
_LZMA, _LZ4 = b"\x5d\0\0", b"\x02\x21\x4c\x18"
_PARAGRAPH, _CRC_OF_A_WHOLE = 16, 0xFFFFFFFF
_PE_CHECKSUM, _PE_CERTIFICATES = (88, 4), (168, 8)  # where in a PE header, how long
_INSTALL = "pip install 'ftracefs[linux]'"


def extract_vmlinux(data: bytes) -> bytes:
    """The ELF file in a bzImage; an ELF file is given back as it is.

    Raises ImageError, with the reason in one line.
    """
    if data.startswith(_ELF):
        return data
    payload = _payload(data)
    (size,) = struct.unpack_from("<I", payload, len(payload) - 4)
    if size > UNPACKED_LIMIT:
        raise ImageError(f"broken: {size} bytes when unpacked")
    if payload.startswith((_LZMA, _LZ4)) and not _has_its_checksum(data):
        raise ImageError("broken: its checksum is wrong")
    vmlinux = _decompress(payload, size)
    if len(vmlinux) < size:
        raise ImageError(f"truncated: unpacks to {len(vmlinux)} bytes of {size}")
    if not vmlinux.startswith(_ELF):
        raise ImageError("there is no ELF file in it")
    return vmlinux


def _payload(data: bytes) -> bytes:
    if len(data) < 0x268 or data[0x202:0x206] != _HEADER_MAGIC:
        raise ImageError("not a vmlinuz (bzImage) or vmlinux (ELF file) for x86")
    (boot_flag,) = struct.unpack_from("<H", data, 0x1FE)
    (version,) = struct.unpack_from("<H", data, 0x206)
    (flags,) = struct.unpack_from("<H", data, 0x236)
    if boot_flag != _BOOT_FLAG or version < _PAYLOAD_PROTOCOL:
        raise ImageError(f"boot protocol {version >> 8}.{version & 0xFF:02} is too old")
    if version >= _XLOADFLAGS_PROTOCOL and not flags & _XLF_KERNEL_64:
        raise ImageError("a 32-bit kernel")
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = ((data[0x1F1] or 4) + 1) * _SECTOR + offset
    if length < 8 or start + length > len(data):
        raise ImageError(f"truncated: {len(data)} bytes of at least {start + length}")
    return data[start : start + length]


def _has_its_checksum(data: bytes) -> bool:
    """By what its header says is the image; a signature has come later, and changed two fields.

    Since 6.15 there are zeros in the checksum's place.
    """
    sectors, paragraphs = data[0x1F1] or 4, int.from_bytes(data[0x1F4:0x1F8], "little")
    image = bytearray(data[: (sectors + 1) * _SECTOR + paragraphs * _PARAGRAPH])
    if not any(image[-4:]):
        return True
    header = int.from_bytes(image[0x3C:0x40], "little")
    if image.startswith(b"MZ") and header < len(image) - sum(_PE_CERTIFICATES):
        for at, size in (_PE_CHECKSUM, _PE_CERTIFICATES):
            image[header + at : header + at + size] = bytes(size)
    return zlib.crc32(image) == _CRC_OF_A_WHOLE


def _decompress(payload: bytes, size: int) -> bytes:
    for magic, unpack in _FORMATS:
        if payload.startswith(magic):
            return unpack(payload, size)
    raise ImageError(f"compressed in a way that is not known ({payload[:6].hex(' ')})")


def _gzip(payload: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(payload, size)
    except zlib.error as error:
        raise _broken("gzip", error) from error


def _bzip2(payload: bytes, size: int) -> bytes:
    try:
        return bz2.BZ2Decompressor().decompress(payload, size)
    except (OSError, EOFError) as error:
        raise _broken("bzip2", error) from error


def _xz(payload: bytes, size: int) -> bytes:
    """Also the older format .lzma."""
    try:
        unpacker = lzma.LZMADecompressor(memlimit=_DICTIONARY_LIMIT)
        return unpacker.decompress(payload, size)
    except (lzma.LZMAError, EOFError) as error:
        raise _broken("xz", error) from error


def _zstd(payload: bytes, size: int) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        raise ImageError(f"compressed with zstd: {_INSTALL}") from error
    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_DICTIONARY_LIMIT)
        with unpacker.stream_reader(payload) as reader:
            return bytes(reader.read(size))
    except zstandard.ZstdError as error:
        raise _broken("zstd", error) from error


def _lz4(payload: bytes, size: int) -> bytes:
    """The frame of old: a magic number, then blocks that each know their packed length."""
    try:
        import lz4.block
    except ImportError as error:
        raise ImageError(f"compressed with lz4: {_INSTALL}") from error
    blocks: list[bytes] = []
    left, at = size, 4
    try:
        while left > 0 and at + 4 <= len(payload):
            (length,) = struct.unpack_from("<I", payload, at)
            block = payload[at + 4 : at + 4 + length]
            blocks.append(lz4.block.decompress(block, uncompressed_size=min(left, _LZ4_BLOCK)))
            left -= len(blocks[-1])
            at += 4 + length
    except lz4.block.LZ4BlockError as error:
        raise _broken("lz4", error) from error
    return b"".join(blocks)


def _lzo(_payload: bytes, _size: int) -> bytes:
    raise ImageError("compressed with lzo, which is not read")


def _broken(how: str, error: Exception) -> ImageError:
    text = " ".join(str(error).split())
    return ImageError(f"broken: {how}: {text}")


_FORMATS: tuple[tuple[bytes, Callable[[bytes, int], bytes]], ...] = (
    (b"\x1f\x8b", _gzip),
    (b"BZh", _bzip2),
    (b"\xfd7zXZ\0", _xz),
    (_LZMA, _xz),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (_LZ4, _lz4),
    (b"\x89LZO", _lzo),
)
