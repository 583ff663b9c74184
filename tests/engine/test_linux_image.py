"""A distribution's kernel as a KernelImage: what the engine takes from it."""

from __future__ import annotations

import numpy as np
import pytest
from support.linux_kernel import require_linux

from emulated_kernel.image import KernelImage
from emulated_kernel.images.linux import linux_image
from emulated_kernel.kallsyms import Kallsyms
from emulated_kernel.linux import Vmlinux, load_vmlinuz
from emulated_kernel.linux.memory import GUEST_BYTES
from emulated_kernel.linux.vmlinux import START_KERNEL_MAP
from emulated_kernel.text_poke import NOP5
from ftracefs.ftrace.records import FtraceRecords


@pytest.fixture(scope="module")
def vmlinux() -> Vmlinux:
    return load_vmlinuz(require_linux())


@pytest.fixture(scope="module")
def image(vmlinux: Vmlinux) -> KernelImage:
    return linux_image(vmlinux)


@pytest.fixture(scope="module")
def kallsyms(image: KernelImage) -> Kallsyms:
    made = Kallsyms()
    made.add("kernel", image.symbols)
    return made


def test_symbols_reach_up_to_the_next_address(vmlinux: Vmlinux, kallsyms: Kallsyms) -> None:
    symbols = vmlinux.symbols
    read = symbols.address("vfs_read")
    following = int(symbols.addresses[np.searchsorted(symbols.addresses, np.uint64(read), "right")])
    location = kallsyms.kallsyms_lookup(following - 1)
    assert location is not None
    assert (location.name, location.size) == ("vfs_read", following - read)
    assert kallsyms.kallsyms_lookup_name("vfs_read") == read


def test_records_bear_the_names_the_kernel_gives_its_functions(
    image: KernelImage, kallsyms: Kallsyms, vmlinux: Vmlinux
) -> None:
    records = FtraceRecords()
    records.add(np.array(image.mcount, dtype=np.uint64), kallsyms, None)
    assert {b"vfs_read", b"schedule", b"do_sys_openat2"} <= set(records.names)
    numbers = vmlinux.symbols.numbers(records.ip)
    named = [
        (name, vmlinux.symbols.names[number].encode())
        for name, number in zip(records.names, numbers.tolist(), strict=True)
        if not name.startswith(b"__ftrace_invalid_address__")
    ]
    assert len(named) > 30_000
    assert [ours for ours, theirs in named if ours != theirs] == []


def test_init_text_is_not_among_the_call_sites(image: KernelImage, vmlinux: Vmlinux) -> None:
    assert set(image.mcount) < set(vmlinux.mcount.tolist())
    assert not vmlinux.init.has(np.array(image.mcount, dtype=np.uint64)).any()


def test_sites_that_its_own_ftrace_uses_are_left_out(vmlinux: Vmlinux) -> None:
    ram = np.zeros(GUEST_BYTES, dtype=np.uint8)
    sites = vmlinux.mcount_after_boot
    places = (sites - np.uint64(START_KERNEL_MAP)).astype(np.int64)
    ram[places[:, None] + np.arange(5)] = np.frombuffer(NOP5, dtype=np.uint8)
    assert linux_image(vmlinux, ram).mcount == sites.tolist()
    ram[places[7] : places[7] + 5] = np.frombuffer(b"\xe8\1\2\3\4", dtype=np.uint8)
    assert linux_image(vmlinux, ram).mcount == np.delete(sites, 7).tolist()


def test_offsets_differ_and_lie_in_a_task(image: KernelImage, vmlinux: Vmlinux) -> None:
    offsets = image.linux
    assert offsets is not None
    members = [offsets.pid, offsets.tgid, offsets.prio, offsets.comm, offsets.stack_canary]
    assert len(set(members)) == len(members)
    assert max(members) < vmlinux.btf.size("task_struct")
    assert offsets.current != offsets.preempt_count
