"""The built-in kernel has the names that clients and the kernel's own tests look for."""

from __future__ import annotations

import fnmatch
from collections import Counter

import pytest

from emulated_kernel.images.builtin import load_builtin

IMAGE = load_builtin()
NAMES = Counter(symbol.name for symbol in IMAGE.symbols)
SITES = set(IMAGE.mcount)
TRACEABLE = {
    symbol.name
    for symbol in IMAGE.symbols
    if symbol.address in SITES or symbol.address + 4 in SITES
}

FUNCTIONS = [
    *("kernel_clone", "schedule", "vfs_read", "do_exit", "tracefs_create_dir"),
    *("scheduler_tick", "do_sys_open", "do_sys_openat2", "vfs_open", "vfs_symlink"),
    *("inet_csk_accept", "wake_up_process", "try_to_wake_up", "mutex_lock", "mutex_unlock"),
    *("mutex_trylock", "_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_trylock"),
    *("__kmalloc", "kfree", "mark_page_accessed", "mark_buffer_dirty", "add_to_page_cache_lru"),
    *("tcp_retransmit_skb", "tcp_send_loss_probe", "netif_receive_skb_core"),
    *("__netif_receive_skb_core", "__x64_sys_execve", "tcp_sendmsg", "tcp_recvmsg", "icmp_rcv"),
    *("ip_rcv", "do_idle", "vfs_write", "ksys_read", "ksys_write"),
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_clients_name_can_be_traced(name: str) -> None:
    assert name in TRACEABLE


@pytest.mark.parametrize("name", ["linux_proc_banner", "_sdata", "__fentry__", "sys_call_table"])
def test_a_symbol_that_clients_name_is_there(name: str) -> None:
    assert name in NAMES


@pytest.mark.parametrize(
    "glob",
    [
        *("*schedule", "schedule*", "*pin*lock", "mutex*unl*", "sch*ule", "[Ss]y[Ss]_*"),
        *("*lock*", "*try*lock", "m*lock", "c*unlock", "do_execve*", "*.isra.*"),
    ],
)
def test_a_glob_of_the_kernels_tests_finds_something(glob: str) -> None:
    assert fnmatch.filter(TRACEABLE, glob)


def test_some_static_functions_share_a_name() -> None:
    assert NAMES["name_show"] >= 3


def test_there_are_hundreds_of_functions_and_some_are_not_to_be_traced() -> None:
    functions = {symbol.name for symbol in IMAGE.symbols if symbol.kind in "tT" and symbol.size}
    assert len(TRACEABLE) >= 250
    assert {"__fentry__", "do_syscall_64", "__switch_to", "memcpy"} <= functions - TRACEABLE


def test_some_functions_begin_with_endbr64() -> None:
    starts = {symbol.address for symbol in IMAGE.symbols}
    assert [site for site in IMAGE.mcount if site - 4 in starts and site not in starts]
