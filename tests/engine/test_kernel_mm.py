"""The guest's allocators, page cache and address spaces."""

from __future__ import annotations

import errno
import itertools
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from support.syscalls import O_CREAT, O_RDONLY, O_RDWR, PAGE, Kernel, Process

from emulated_kernel.asm_offsets import PAGE_OFFSET

GFP_KERNEL, GFP_ZERO, GFP_ATOMIC = 0xCC0, 0x100, 0xA20
MAX_ORDER = 11
PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC = 0, 1, 2, 4
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS = 1, 2, 0x10, 0x20
FAULT_WRITE = 1
VM_FAULT_SIGBUS, VM_FAULT_SIGSEGV = 2, 0x40
BASE = 0x2000_0000


@pytest.fixture
def balanced(kernel: Kernel) -> Iterator[Kernel]:
    """What a test takes it gives back."""
    before = kernel.holdings()
    yield kernel
    assert kernel.holdings() == before


@pytest.fixture
def process(balanced: Kernel, pids: Iterator[int]) -> Iterator[Process]:
    made = balanced.process(next(pids))
    yield made
    made.exit()


# --- pages ---------------------------------------------------------------------------------------


def free_blocks(kernel: Kernel) -> list[int]:
    """How many free blocks of each order there are, with no page in a vCPU's list."""
    kernel.call("drain_all_pages")
    area = kernel.image.label("contig_zone") + kernel.constants["ZONE_FREE_AREA"]
    size = kernel.constants["FREE_AREA_BYTES"]
    return [
        kernel.memory.u64(area + order * size + kernel.constants["FREE_AREA_COUNT"])
        for order in range(MAX_ORDER)
    ]


def test_blocks_are_aligned_apart_and_join_again(balanced: Kernel) -> None:
    before = free_blocks(balanced)
    start = balanced.word("memory_start")
    taken: dict[int, int] = {}
    for order in [0, 3, 1, 0, 5, 10, 2, 0, 0, 7, 4, 1, 9]:
        address = balanced.call("__get_free_pages", GFP_KERNEL, order) & (1 << 64) - 1
        assert address
        assert (address - start) % (PAGE << order) == 0
        taken[address] = PAGE << order
    spans = sorted(taken.items())
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans))
    for address in random.Random(1).sample(sorted(taken), len(taken)):
        balanced.call("free_pages", address, (taken[address] // PAGE).bit_length() - 1)
    assert free_blocks(balanced) == before


def test_zeroed_pages_are_zero(balanced: Kernel) -> None:
    pages = [balanced.call("get_zeroed_page", GFP_KERNEL) & (1 << 64) - 1 for _ in range(5)]
    for page in pages:
        assert balanced.memory.read(page, PAGE) == bytes(PAGE)
        balanced.memory.write(page, b"\xff" * PAGE)
        balanced.call("free_pages", page, 0)
    for _ in pages:
        page = balanced.call("get_zeroed_page", GFP_KERNEL) & (1 << 64) - 1
        assert balanced.memory.read(page, PAGE) == bytes(PAGE)
        balanced.call("free_pages", page, 0)


def test_memory_runs_out_and_comes_back(balanced: Kernel) -> None:
    before = free_blocks(balanced)
    taken = []
    while address := balanced.call("__get_free_pages", GFP_KERNEL, 8):
        taken.append(address & (1 << 64) - 1)
    assert len(taken) > 40
    small = []
    while address := balanced.call("__get_free_pages", GFP_KERNEL, 0):
        small.append(address & (1 << 64) - 1)
    reserve = balanced.free_pages()
    assert 0 < reserve <= 64  # for those who cannot wait
    atomic = balanced.call("__get_free_pages", GFP_ATOMIC, 0) & (1 << 64) - 1
    assert atomic
    assert balanced.call("__kmalloc", 100_000, GFP_KERNEL) == 0
    assert balanced.call("__get_free_pages", GFP_KERNEL, MAX_ORDER) == 0
    for address in taken:
        balanced.call("free_pages", address, 8)
    for address in small:
        balanced.call("free_pages", address, 0)
    balanced.call("free_pages", atomic, 0)
    assert free_blocks(balanced) == before


def test_an_injected_failure_is_one_failure(balanced: Kernel) -> None:
    times = balanced.image.label("fail_page_alloc_times")
    balanced.memory.set_u32(times, 1)
    assert balanced.call("__get_free_pages", GFP_KERNEL, 0) == 0
    page = balanced.call("__get_free_pages", GFP_KERNEL, 0) & (1 << 64) - 1
    assert page
    balanced.call("free_pages", page, 0)


# --- objects -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 8, 9, 24, 96, 97, 128, 150, 192, 193, 512, 1000, 4096, 8192])
def test_objects_do_not_overlap(balanced: Kernel, size: int) -> None:
    objects = [balanced.call("__kmalloc", size, GFP_KERNEL) & (1 << 64) - 1 for _ in range(70)]
    for number, address in enumerate(objects):
        balanced.memory.write(address, bytes([number]) * size)
    for number, address in enumerate(objects):
        assert balanced.memory.read(address, size) == bytes([number]) * size
    for address in objects[::2] + objects[1::2]:
        balanced.call("kfree", address)


def test_large_objects_are_whole_pages(balanced: Kernel) -> None:
    address = balanced.call("__kmalloc", 5 * PAGE, GFP_KERNEL) & (1 << 64) - 1
    assert address % PAGE == 0
    balanced.memory.write(address, bytes(5 * PAGE))
    balanced.call("kfree", address)
    balanced.call("kfree", 0)
    balanced.call("kfree", 16)


def test_objects_come_and_go_on_both_cpus(balanced: Kernel) -> None:
    dice = random.Random(7)
    live: dict[int, bytes] = {}
    sizes: dict[int, int] = {}
    for step in range(1500):
        cpu = dice.randrange(2)
        if live and dice.random() < 0.5:
            address = dice.choice(list(live))
            assert balanced.memory.read(address, sizes[address]) == live.pop(address)
            balanced.call("kfree", address, cpu=cpu)
        else:
            size = dice.choice([16, 60, 100, 190, 250, 700, 3000])
            zero = dice.random() < 0.5
            gfp = GFP_KERNEL | (GFP_ZERO if zero else 0)
            address = balanced.call("__kmalloc", size, gfp, cpu=cpu) & (1 << 64) - 1
            assert address not in live
            if zero:
                assert balanced.memory.read(address, size) == bytes(size)
            live[address], sizes[address] = struct.pack("<I", step) * (size // 4), size // 4 * 4
            balanced.memory.write(address, live[address])
    for address in live:
        balanced.call("kfree", address, cpu=1)


def test_empty_slabs_are_given_back(kernel: Kernel) -> None:
    slabs = kernel.caches()["kmalloc-512"][1]
    objects = [kernel.call("__kmalloc", 512, GFP_KERNEL) & (1 << 64) - 1 for _ in range(400)]
    assert kernel.caches()["kmalloc-512"][1] >= 400 // 8
    for address in objects:
        kernel.call("kfree", address)
    assert kernel.caches()["kmalloc-512"][1] <= slabs + kernel.constants["MIN_PARTIAL"] + 1


def test_an_object_of_another_cache_is_not_taken_back(kernel: Kernel) -> None:
    cache = kernel.word("dentry_cache")
    address = kernel.call("__kmalloc", 64, GFP_KERNEL) & (1 << 64) - 1
    wrong = kernel.word("slab_wrong_frees")
    held = kernel.caches()["dentry"][0]
    kernel.call("kmem_cache_free", cache, address)
    assert kernel.word("slab_wrong_frees") == wrong + 1
    assert kernel.caches()["dentry"][0] == held
    kernel.call("kfree", address)


# --- the index of a file's pages -----------------------------------------------------------------


def test_the_index_is_a_sparse_array(balanced: Kernel) -> None:
    mapping = balanced.machine.alloc(balanced.constants["MAPPING_BYTES"])
    dice = random.Random(3)
    model: dict[int, int] = {}
    for _ in range(1200):
        index = dice.choice([dice.randrange(200), dice.randrange(1 << 20), dice.getrandbits(51)])
        if dice.random() < 0.4 and model:
            index = dice.choice(list(model))
            assert balanced.call("xas_store", mapping, index, 0) == model.pop(index)
        else:
            entry = dice.randrange(1, 1 << 40) * 4
            assert balanced.call("xas_store", mapping, index, entry) == model.get(index, 0)
            model[index] = entry
        probe = dice.choice(list(model)) if model and dice.random() < 0.5 else index
        assert balanced.call("xas_load", mapping, probe) == model.get(probe, 0)
        assert balanced.call("xas_load", mapping, probe ^ 1) == model.get(probe ^ 1, 0)
        first = dice.choice([0, index, index + 1])
        last = dice.choice([first + 100, (1 << 64) - 1])
        expected = min((i for i in model if first <= i <= last), default=None)
        found = balanced.call("xas_find", mapping, first, last)
        assert found == (model[expected] if expected is not None else 0)
    for index, entry in model.items():
        assert balanced.call("xas_store", mapping, index, 0) == entry
    assert balanced.memory.u64(mapping + balanced.constants["MAPPING_ROOT"]) == 0


def test_memory_runs_out_while_the_index_grows(balanced: Kernel) -> None:
    mapping = balanced.machine.alloc(balanced.constants["MAPPING_BYTES"])
    taken = []
    while address := balanced.call("__get_free_pages", GFP_ATOMIC, 0):
        taken.append(address & (1 << 64) - 1)
    stored = []
    for index in (5, 1 << 30, 1 << 40, 7):
        result = balanced.call("xas_store", mapping, index, 0x1000)
        assert result in {0, -errno.ENOMEM}
        if result == 0:
            stored.append(index)
    for index in itertools.count(1 << 20, 1 << 12):
        if balanced.call("xas_store", mapping, index, 0x1000):
            break
        stored.append(index)
    for address in taken:
        balanced.call("free_pages", address, 0)
    for index in stored:
        assert balanced.call("xas_store", mapping, index, 0) == 0x1000
    assert balanced.memory.u64(mapping + balanced.constants["MAPPING_ROOT"]) == 0


# --- address spaces ------------------------------------------------------------------------------


@dataclass
class Space:
    """The address space of a process, as its areas say it is."""

    kernel: Kernel
    mm: int

    @classmethod
    def of(cls, process: Process) -> Space:
        kernel = process.kernel
        return cls(kernel, kernel.memory.u64(process.task.address + kernel.constants["TASK_MM"]))

    def field(self, name: str) -> int:
        return self.kernel.memory.u64(self.mm + self.kernel.constants[name])

    def areas(self) -> list[tuple[int, int, int]]:
        """(start, end, protection) in order; the list is checked both ways."""
        memory, constants = self.kernel.memory, self.kernel.constants
        area, before, found = self.field("MM_MMAP"), 0, []
        while area:
            assert memory.u64(area + constants["VMA_PREV"]) == before
            start = memory.u64(area + constants["VMA_START"])
            end = memory.u64(area + constants["VMA_END"])
            assert start < end
            assert not found or found[-1][1] <= start
            found.append((start, end, memory.u64(area + constants["VMA_FLAGS"]) & 7))
            area, before = memory.u64(area + constants["VMA_NEXT"]), area
        assert len(found) == self.field("MM_MAP_COUNT")
        assert sum(e - s for s, e, _ in found) == self.field("MM_TOTAL_VM") * PAGE
        return found

    def area(self, address: int) -> int:
        return self.kernel.call("find_vma", self.mm, address) & (1 << 64) - 1

    def fault(self, address: int, flags: int = 0) -> int:
        return self.kernel.call("handle_mm_fault", self.area(address), address, flags, 0)

    def entry(self, address: int) -> int:
        """The page table entry of an address, by the table's own format."""
        table = self.field("MM_PGD")
        for shift in (39, 30, 21, 12):
            entry = self.kernel.memory.u64(table + 8 * (address >> shift & 511))
            if shift == 12 or not entry & 1:
                return entry if shift == 12 else 0
            table = (entry & 0xFFFFFFFFFF000) + PAGE_OFFSET
        raise AssertionError

    def page(self, address: int) -> int:
        """The direct map address of the page behind an address."""
        entry = self.entry(address)
        assert entry & 1, hex(address)
        return (entry & 0xFFFFFFFFFF000) + PAGE_OFFSET


def mmap(process: Process, address: int, size: int, prot: int = 3, flags: int = 0x22) -> int:
    return process.call("mmap", address, size, prot, flags, (1 << 32) - 1, 0)


def test_a_program_is_mapped_where_its_header_says(process: Process) -> None:
    space = Space.of(process)
    areas = space.areas()
    assert areas[0] == (0x400000, 0x401000, PROT_READ | PROT_EXEC)
    assert areas[1] == (0x600000, 0x601000, PROT_READ | PROT_WRITE)
    stack = areas[-1]
    assert stack[1] == 0x7FFFFFFFF000
    assert stack[2] == PROT_READ | PROT_WRITE
    top = space.page(stack[1] - 1)
    name = b"/usr/bin/sh\0"
    assert process.kernel.memory.read(top, PAGE).rstrip(b"\0").endswith(name[:-1])
    assert space.fault(0x400000) == 0
    assert process.kernel.memory.read(space.page(0x400000), 4) == b"\x7fELF"


def test_arguments_go_to_the_stack(process: Process) -> None:
    words = [b"echo\0", b"x" * 5000 + b"\0", b"y\0"]
    addresses, at = [], 0x1000
    for word in words:
        addresses.append(process.put(word, at))
        at += len(word)
    vector = process.put(b"".join(struct.pack("<Q", a) for a in [*addresses, 0]))
    assert process.call("execve", process.path("/bin/echo"), vector, 0) == 0
    space = Space.of(process)
    start, end = space.field("MM_START_STACK"), 0x7FFFFFFFF000
    text = b"".join(
        process.kernel.memory.read(space.page(a), PAGE)
        for a in range(start & ~(PAGE - 1), end, PAGE)
    )[start % PAGE :]
    assert text.lstrip(b"\0").startswith(b"".join(words) + b"/bin/echo\0")
    bad = process.put(struct.pack("<QQ", 0x1000, 0))
    assert process.call("execve", process.path("/bin/echo"), bad, 0) == -errno.EFAULT
    assert process.call("execve", process.path("/bin/echo"), 0x1000, 0) == -errno.EFAULT


def test_mapping_finds_room_from_the_top_down(process: Process) -> None:
    first, second = mmap(process, 0, 3 * PAGE, PROT_READ), mmap(process, 0, PAGE, PROT_WRITE)
    assert first == Space.of(process).field("MM_MMAP_BASE") - 3 * PAGE
    assert second == first - PAGE
    assert process.call("munmap", first, 3 * PAGE) == 0
    assert mmap(process, 0, 2 * PAGE, PROT_EXEC) == first + PAGE
    assert mmap(process, first + PAGE, PAGE) == first  # the wish is taken already
    assert mmap(process, BASE + 5, PAGE) == BASE


def test_neighbours_of_the_same_kind_become_one(process: Process) -> None:
    def inside() -> list[tuple[int, int, int]]:
        return [a for a in Space.of(process).areas() if BASE <= a[0] < BASE + (1 << 20)]

    fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED
    mmap(process, BASE, PAGE, 3, fixed)
    mmap(process, BASE + 2 * PAGE, PAGE, 3, fixed)
    assert len(inside()) == 2
    mmap(process, BASE + PAGE, PAGE, 3, fixed)
    assert inside() == [(BASE, BASE + 3 * PAGE, 3)]
    assert process.call("mprotect", BASE + PAGE, PAGE, PROT_READ) == 0
    assert [a[2] for a in inside()] == [3, 1, 3]
    assert process.call("munmap", BASE + PAGE // 2 * 2 + PAGE, PAGE) == 0
    assert [a[:2] for a in inside()] == [(BASE, BASE + PAGE), (BASE + PAGE, BASE + 2 * PAGE)]
    assert process.call("mprotect", BASE, 3 * PAGE, PROT_READ) == -errno.ENOMEM


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0, 0, 3, 0x22, -1, 0), errno.EINVAL),
        ((0, PAGE, 3, 0x20, -1, 0), errno.EINVAL),
        ((5, PAGE, 3, 0x32, -1, 0), errno.EINVAL),
        ((0, 1 << 48, 3, 0x22, -1, 0), errno.ENOMEM),
        ((0, 1 << 40, 3, 0x22, -1, 0), errno.ENOMEM),
        ((0, PAGE, 3, 2, 77, 0), errno.EBADF),
        ((0, PAGE, 3, 0x22, -1, 5), errno.EINVAL),
    ],
)
def test_what_cannot_be_mapped(process: Process, arguments: tuple[int, ...], error: int) -> None:
    assert process.call("mmap", *(a & (1 << 64) - 1 for a in arguments)) == -error


def test_random_mappings_match_a_model(process: Process) -> None:
    dice = random.Random(11)
    pages = 64
    model: list[int | None] = [None] * pages
    space = Space.of(process)
    for step in range(250):
        first = dice.randrange(pages)
        count = dice.randint(1, min(12, pages - first))
        where, size = BASE + first * PAGE, count * PAGE
        action = dice.random()
        span = range(first, first + count)
        if action < 0.45:
            prot = dice.choice([1, 3, 7])
            assert mmap(process, where, size, prot, 0x32) == where
            for i in span:
                model[i] = prot
        elif action < 0.75:
            assert process.call("munmap", where, size) == 0
            for i in span:
                model[i] = None
        else:
            prot = dice.choice([1, 3])
            result = process.call("mprotect", where, size, prot)
            holes = [i for i in span if model[i] is None]
            assert result == (-errno.ENOMEM if holes else 0)
            for i in itertools.takewhile(lambda i: model[i] is not None, span):
                model[i] = prot
        for _ in range(3):
            i = dice.randrange(pages)
            address = BASE + i * PAGE
            if model[i] is not None:
                write = dice.random() < 0.5
                allowed = not write or bool(model[i] & 2)
                assert space.fault(address, int(write)) == (0 if allowed else VM_FAULT_SIGSEGV)
        found: list[int | None] = [None] * pages
        for start, end, prot in space.areas():
            for at in range(max(start, BASE), min(end, BASE + pages * PAGE), PAGE):
                found[(at - BASE) // PAGE] = prot
        assert found == model, step
        for i in range(pages):
            if model[i] is None:
                assert not space.entry(BASE + i * PAGE) & 1


def test_a_page_comes_with_its_first_use(process: Process) -> None:
    space = Space.of(process)
    address = mmap(process, BASE, 4 * PAGE)
    resident = space.field("MM_RSS")
    assert space.entry(address) == 0
    assert space.fault(address + 100, FAULT_WRITE) == 0
    assert space.field("MM_RSS") == resident + 1
    page = space.page(address)
    assert process.kernel.memory.read(page, PAGE) == bytes(PAGE)
    assert space.fault(address + 200) == 0
    assert space.page(address) == page
    process.call("mprotect", address, PAGE, PROT_READ)
    assert space.fault(address, FAULT_WRITE) == VM_FAULT_SIGSEGV
    process.call("mprotect", address, PAGE, PROT_READ | PROT_WRITE)
    assert space.fault(address, FAULT_WRITE) == 0
    assert space.page(address) == page
    assert process.call("munmap", address, 4 * PAGE) == 0
    assert space.field("MM_RSS") == resident


def test_a_mapped_file_shows_its_contents(process: Process) -> None:
    data = bytes(range(256)) * 20
    process.save("/tmp/mapped", data)
    fd = process.open("/tmp/mapped", O_RDWR)
    private = process.call("mmap", 0, 2 * PAGE, 3, MAP_PRIVATE, fd, 0)
    shared = process.call("mmap", 0, 2 * PAGE, 3, MAP_SHARED, fd, 0)
    second = process.call("mmap", 0, PAGE, 1, MAP_SHARED, fd, PAGE)
    space, memory = Space.of(process), process.kernel.memory
    assert space.fault(private) == space.fault(shared) == space.fault(second) == 0
    assert memory.read(space.page(private), PAGE) == data[:PAGE]
    assert space.page(private) == space.page(shared)
    assert memory.read(space.page(second), len(data) - PAGE) == data[PAGE:]
    assert space.fault(private, FAULT_WRITE) == 0  # a copy
    assert space.page(private) != space.page(shared)
    memory.write(space.page(private), b"private")
    assert space.fault(shared, FAULT_WRITE) == 0
    memory.write(space.page(shared), b"shared!")
    assert process.pread(fd, 7, 0) == b"shared!"
    assert space.fault(shared + PAGE) == 0
    far = process.call("mmap", 0, 2 * PAGE, 1, MAP_SHARED, fd, 4 * PAGE)
    assert space.fault(far) == VM_FAULT_SIGBUS
    process.close(fd)
    assert process.pread(fd, 1, 0) == -errno.EBADF
    assert process.cat("/tmp/mapped")[:7] == b"shared!"  # type: ignore[index]
    reader = process.open("/tmp/mapped", O_RDONLY)
    assert process.call("mmap", 0, PAGE, 3, MAP_SHARED, reader, 0) == -errno.EACCES
    directory = process.open("/tmp")
    assert process.call("mmap", 0, PAGE, 1, MAP_SHARED, directory, 0) == -errno.ENODEV
    assert process.unlink("/tmp/mapped") == 0


def test_a_child_gets_a_copy_when_somebody_writes(process: Process, pids: Iterator[int]) -> None:
    kernel = process.kernel
    address = mmap(process, BASE, 8 * PAGE)
    parent = Space.of(process)
    for i in range(4):
        assert parent.fault(address + i * PAGE, FAULT_WRITE) == 0
        kernel.memory.write(parent.page(address + i * PAGE), bytes([i]) * 8)
    copy = kernel.call("dup_mm", process.task.address, parent.mm) & (1 << 64) - 1
    child = Space(kernel, copy)
    assert child.areas() == parent.areas()
    assert child.field("MM_RSS") == parent.field("MM_RSS")
    for i in range(4):
        assert child.page(address + i * PAGE) == parent.page(address + i * PAGE)
        assert not parent.entry(address + i * PAGE) & 2  # neither may write
    assert child.fault(address, FAULT_WRITE) == 0
    assert child.page(address) != parent.page(address)
    assert kernel.memory.read(child.page(address), 8) == bytes(8)
    kernel.memory.write(child.page(address), b"child---")
    assert kernel.memory.read(parent.page(address), 8) == bytes(8)
    page = parent.page(address)
    assert parent.fault(address, FAULT_WRITE) == 0  # the only one left: no copy
    assert parent.page(address) == page
    kernel.call("mmput", copy)
    assert kernel.memory.read(parent.page(address + PAGE), 8) == bytes([1]) * 8
    assert parent.fault(address + PAGE, FAULT_WRITE) == 0


def test_the_heap(process: Process) -> None:
    space = Space.of(process)
    start = process.call("brk", 0)
    assert start == space.field("MM_START_BRK") == 0x601000
    assert process.call("brk", start + 100) == start + 100
    assert process.call("brk", start + 10 * PAGE) == start + 10 * PAGE
    assert (start - PAGE, start + 10 * PAGE, 3) in space.areas()
    assert space.fault(start + 5 * PAGE, FAULT_WRITE) == 0
    assert process.call("brk", start + PAGE) == start + PAGE
    assert space.entry(start + 5 * PAGE) == 0
    assert process.call("brk", 1) == start + PAGE
    assert process.call("brk", 1 << 46) == start + PAGE
    mmap(process, start + 3 * PAGE, PAGE, 3, 0x32)
    assert process.call("brk", start + 3 * PAGE) == start + PAGE  # too near to a mapping


def test_tables_go_with_the_areas_that_need_them(process: Process) -> None:
    space = Space.of(process)
    tables = space.field("MM_PGTABLES")
    far = [0x1000_0000_0000, 0x1000_4000_0000, 0x2000_0000_0000]
    for address in far:
        assert mmap(process, address, PAGE, 3, 0x32) == address
        assert space.fault(address, FAULT_WRITE) == 0
    assert space.field("MM_PGTABLES") == tables + 3 + 2 + 3
    for address in far:
        assert process.call("munmap", address, PAGE) == 0
    assert space.field("MM_PGTABLES") == tables


# --- the page cache ------------------------------------------------------------------------------


@dataclass
class ModelFile:
    data: bytearray = field(default_factory=bytearray)

    def write(self, offset: int, piece: bytes) -> None:
        self.data.extend(bytes(max(0, offset + len(piece) - len(self.data))))
        self.data[offset : offset + len(piece)] = piece

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))


def test_a_file_under_random_use_matches_a_model(process: Process) -> None:
    dice, model = random.Random(5), ModelFile()
    fd = process.open("/tmp/random", O_RDWR | O_CREAT)
    for step in range(400):
        offset, size = dice.randrange(20 * PAGE), dice.choice([1, 100, PAGE, 3 * PAGE + 7])
        action = dice.random()
        if action < 0.4:
            piece = dice.randbytes(size)
            assert process.pwrite(fd, piece, offset) == size
            model.write(offset, piece)
        elif action < 0.6:
            assert process.call("ftruncate", fd, offset) == 0
            model.truncate(offset)
        else:
            assert process.pread(fd, size, offset) == bytes(model.data[offset : offset + size]), (
                step
            )
    assert process.cat("/tmp/random", 5000) == bytes(model.data)
    process.close(fd)
    assert process.unlink("/tmp/random") == 0


def test_pages_in_use_become_active(process: Process) -> None:
    kernel = process.kernel
    process.save("/tmp/hot", bytes(PAGE))
    kernel.call("lru_add_drain")
    active = kernel.word("node_lruvec", "LRUVEC_NR_ACTIVE")
    for _ in range(3):
        process.cat("/tmp/hot")
    assert kernel.word("node_lruvec", "LRUVEC_NR_ACTIVE") == active + 1
    assert process.unlink("/tmp/hot") == 0
    kernel.call("lru_add_drain")
    assert kernel.word("node_lruvec", "LRUVEC_NR_ACTIVE") == active


def test_no_memory_for_a_write(process: Process) -> None:
    kernel = process.kernel
    fd = process.open("/tmp/full", O_RDWR | O_CREAT)
    assert process.write(fd, b"x" * PAGE) == PAGE
    kernel.memory.set_u32(kernel.image.label("fail_page_alloc_times"), 1)
    assert process.pwrite(fd, b"y" * PAGE, 5 * PAGE) == -errno.ENOMEM
    assert process.pwrite(fd, b"y" * PAGE, 5 * PAGE) == PAGE
    process.close(fd)
    assert process.unlink("/tmp/full") == 0
