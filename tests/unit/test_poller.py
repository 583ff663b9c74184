"""Poll handles: each is used or given up exactly once, and the newest wakes."""

from __future__ import annotations

from ftracefs.mount.handles import Poller


class Handle:
    def __init__(self) -> None:
        self.ends: list[str] = []

    def notify(self) -> None:
        self.ends.append("notify")

    def destroy(self) -> None:
        self.ends.append("destroy")


def test_a_new_handle_takes_the_place_of_the_one_before() -> None:
    poller, first, second = Poller(), Handle(), Handle()
    poller.arm(first)
    poller.arm(second)
    assert first.ends == ["destroy"]
    poller.notify()
    assert (first.ends, second.ends) == (["destroy"], ["notify"])


def test_a_handle_wakes_once() -> None:
    poller, handle = Poller(), Handle()
    poller.arm(handle)
    poller.notify()
    poller.notify()
    poller.disarm()
    assert handle.ends == ["notify"]


def test_nobody_is_woken_once_the_file_is_gone() -> None:
    poller, handle = Poller(), Handle()
    poller.arm(handle)
    poller.disarm()
    poller.notify()
    assert handle.ends == ["destroy"]
