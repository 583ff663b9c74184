"""error_log's text."""

from __future__ import annotations

from ftracefs.trace.error_log import ErrorLog


def test_an_entry_has_the_time_the_command_and_a_mark_under_the_place() -> None:
    log = ErrorLog()
    log.tracing_log_err(
        95_980_492_999, "trace_kprobe", "p:off vfs_read-1", "Invalid probed address or symbol", 6
    )
    assert log.text() == (
        "[   95.980492] trace_kprobe: error: Invalid probed address or symbol\n"
        "  Command: p:off vfs_read-1\n"
        "                 ^\n"
    )


def test_the_last_eight_are_kept() -> None:
    log = ErrorLog()
    for number in range(10):
        log.tracing_log_err(0, "here", f"command {number}", "wrong", 0)
    assert log.text().count("error:") == 8
    assert "command 1\n" not in log.text()
    assert "command 2\n" in log.text()
    log.clear()
    assert log.text() == ""
