"""Events of the host's processes: which of them concern a task."""

from __future__ import annotations

from emulated_kernel.host_events import ProcEvent, concerning

FORK, EXEC, COMM = 0x1, 0x2, 0x200


def test_what_other_processes_do_does_not_count() -> None:
    others = [ProcEvent(FORK, 5000 + n, 4000) for n in range(1000)]
    others += [ProcEvent(EXEC, 5000 + n) for n in range(1000)]
    ours = [ProcEvent(EXEC, 10)]
    assert concerning([*others, *ours, *others], {10}.__contains__) == ours


def test_a_child_and_its_children_are_followed_from_their_fork_on() -> None:
    events = [
        ProcEvent(EXEC, 11),  # not known yet
        ProcEvent(FORK, 11, 10),
        ProcEvent(EXEC, 11),
        ProcEvent(FORK, 12, 11),
        ProcEvent(COMM, 12),
        ProcEvent(FORK, 14, 13),
    ]
    assert concerning(events, {10}.__contains__) == events[1:5]
