"""The self-test of the native hooks, which is a test of both ways to deliver exceptions."""

from __future__ import annotations

import mmap

import pytest

from emulated_kernel.machine import native_hooks, self_test
from emulated_kernel.machine.cpu_state import UnicornMismatch
from emulated_kernel.machine.pc_cpu import PcCpu


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_a_guest_takes_exceptions_and_system_calls(native: bool) -> None:
    assert self_test.differences(native=native) == []


def test_code_written_through_another_mapping_is_stale_without_the_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_hooks.NativeHooks, "replace_functions", lambda self: None)
    assert self_test.differences(native=True) == ["seen_fresh is 0x0, not 0x1"]


def test_exceptions_are_left_to_python_where_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> int:
        raise UnicornMismatch(f"libunicorn does not export {name}")

    monkeypatch.setattr(native_hooks, "library_function", missing)
    self_test.native_hooks_work.cache_clear()
    try:
        assert not self_test.native_hooks_work()
    finally:
        self_test.native_hooks_work.cache_clear()


def test_another_instance_does_not_use_the_stand_ins_of_one_that_is_gone() -> None:
    for _ in range(3):
        assert self_test.differences(native=True) == []
    ram = mmap.mmap(-1, 2 << 20)
    cpu = PcCpu(ram, self_test.NoPorts(), {}, native=True)
    cpu.close()
    assert self_test.differences(native=False) == []
