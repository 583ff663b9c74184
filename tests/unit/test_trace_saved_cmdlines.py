"""Names and thread groups of pids."""

from __future__ import annotations

import errno

import pytest

from ftracefs.errors import TracefsError
from ftracefs.trace.saved_cmdlines import SavedCmdlines
from ftracefs.trace.saved_tgids import SavedTgids


def test_a_saved_name_is_found_and_listed_in_the_order_of_saving() -> None:
    saved = SavedCmdlines()
    saved.trace_save_cmdline(105, "bash")
    saved.trace_save_cmdline(15, "rcu_preempt")
    assert saved.trace_find_cmdline(105) == "bash"
    assert saved.text() == "105 bash\n15 rcu_preempt\n"


def test_an_unknown_pid_is_dots_and_the_idle_task_is_never_saved() -> None:
    saved = SavedCmdlines()
    saved.trace_save_cmdline(0, "swapper/0")
    assert saved.trace_find_cmdline(0) == "<idle>"
    assert saved.trace_find_cmdline(7) == "<...>"
    assert saved.text() == ""


def test_a_task_that_changes_its_name_keeps_its_place() -> None:
    saved = SavedCmdlines()
    saved.trace_save_cmdline(5, "bash")
    saved.trace_save_cmdline(6, "sh")
    names = saved.names()
    saved.trace_save_cmdline(5, "cat")
    assert saved.text() == "5 cat\n6 sh\n"
    assert names[5] == "bash", "a reader keeps the names it began with"


def test_the_oldest_name_goes_when_the_ring_is_full() -> None:
    saved = SavedCmdlines(cmdline_num=2)
    for pid in (1, 2, 3):
        saved.trace_save_cmdline(pid, f"task{pid}")
    assert saved.names() == {2: "task2", 3: "task3"}
    assert saved.trace_find_cmdline(1) == "<...>"


def test_pids_equal_modulo_32768_share_a_place() -> None:
    saved = SavedCmdlines()
    saved.trace_save_cmdline(9, "old")
    saved.trace_save_cmdline(9 + 0x8000, "new")
    assert saved.names() == {9 + 0x8000: "new"}


@pytest.mark.parametrize(
    ("asked", "got"), [(1, 6552), (6552, 6552), (6553, 19659), (19660, 45874), (32768, 45874)]
)
def test_a_new_size_is_what_fits_into_its_pages_and_empties_the_ring(asked: int, got: int) -> None:
    saved = SavedCmdlines()
    assert saved.cmdline_num == 6552
    saved.trace_save_cmdline(5, "bash")
    saved.tracing_resize_saved_cmdlines(asked)
    assert saved.cmdline_num == got
    assert saved.text() == ""


@pytest.mark.parametrize("asked", [0, 32769, 1 << 40])
def test_no_names_and_more_than_there_are_pids_are_refused(asked: int) -> None:
    saved = SavedCmdlines()
    with pytest.raises(TracefsError) as refused:
        saved.tracing_resize_saved_cmdlines(asked)
    assert refused.value.errno == errno.EINVAL


def test_thread_groups_are_saved_once_there_is_a_map() -> None:
    saved = SavedTgids()
    saved.trace_save_tgid(12, 10)
    assert saved.text() == ""
    saved.alloc_tgid_map()
    for pid, tgid in ((12, 10), (3, 3), (0, 0)):
        saved.trace_save_tgid(pid, tgid)
    assert saved.text() == "3 3\n12 10\n"
    before = saved.tgids()
    saved.trace_save_tgid(12, 11)
    assert (before[12], saved.tgids()[12]) == (10, 11)
