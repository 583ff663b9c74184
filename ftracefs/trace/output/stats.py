"""The file per_cpu/cpuN/stats (tracing_stats_read)."""

from __future__ import annotations

from ftracefs.ring_buffer.per_cpu import Stats


def _time(ts: int, in_ns: bool) -> str:
    if not in_ns:
        return str(ts)
    seconds, usecs = divmod((ts + 500) // 1000, 1_000_000)
    return f"{seconds:5d}.{usecs:06d}"


def tracing_stats(stats: Stats, oldest_event_ts: int, now_ts: int, in_ns: bool) -> str:
    """The counters of one CPU; `in_ns` as the buffer's clock counts."""
    return (
        f"entries: {stats.entries}\n"
        f"overrun: {stats.overrun}\n"
        f"commit overrun: {stats.commit_overrun}\n"
        f"bytes: {stats.bytes}\n"
        f"oldest event ts: {_time(oldest_event_ts, in_ns)}\n"
        f"now ts: {_time(now_ts, in_ns)}\n"
        f"dropped events: {stats.dropped_events}\n"
        f"read events: {stats.read_events}\n"
    )
