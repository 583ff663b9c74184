"""Names of pids."""

from __future__ import annotations

from ftracefs.trace.saved_cmdlines import SavedCmdlines


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
