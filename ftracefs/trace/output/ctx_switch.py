"""Records of the wakeup tracers: a task is woken, a task is switched to (trace_ctxwake_* of
kernel/trace/trace_output.c).
"""

from __future__ import annotations

from ftracefs.ring_buffer.entries import Entries
from ftracefs.trace.output.event_output import EventText, TraceEventFunctions
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.payloads import texts_by_payload
from ftracefs.trace.saved_cmdlines import find_cmdline

TRACE_CTX = 2
TRACE_WAKE = 3
_TASK_STATES = "RSDTtXZPI"  # task_index_to_char


def _ctxwake_fields(entries: Entries) -> list[tuple[int, int, str, int, int, int, str]]:
    """pid, priority and state of who ran; CPU, pid, priority and state of who comes."""
    columns = [entries.u32(offset).tolist() for offset in (8, 12, 16, 20)]
    found = []
    for prev_pid, next_pid, next_cpu, bits in zip(*columns, strict=True):
        prev_prio, prev_state, next_prio, next_state = bits.to_bytes(4, "little")
        before = prev_pid, prev_prio, _state(prev_state)
        found.append((*before, next_cpu, next_pid, next_prio, _state(next_state)))
    return found


def _state(index: int) -> str:
    return _TASK_STATES[index] if index < len(_TASK_STATES) else "?"


def _ctxwake_print(delimiter: str) -> EventText:
    def print_text(entries: Entries, context: OutputContext) -> list[bytes]:
        def render(entries: Entries) -> list[bytes]:
            return [
                (
                    f" {prev_pid:7}:{prev_prio:3}:{prev_state} {delimiter} [{next_cpu:03}]"
                    f" {next_pid:7}:{next_prio:3}:{next_state} "
                    f"{find_cmdline(context.names, next_pid)}\n"
                ).encode("utf-8", "surrogateescape")
                for prev_pid, prev_prio, prev_state, next_cpu, next_pid, next_prio, next_state in (
                    _ctxwake_fields(entries)
                )
            ]

        return texts_by_payload(entries, {}, render)

    return print_text


def _ctxwake_raw(state: str) -> EventText:
    def raw_text(entries: Entries, context: OutputContext) -> list[bytes]:
        return [
            f"{first} {prio} {state or was} {cpu} {pid} {next_prio} {is_now}\n".encode()
            for first, prio, was, cpu, pid, next_prio, is_now in _ctxwake_fields(entries)
        ]

    return raw_text


def _ctxwake_hex(state: str) -> EventText:
    def hex_text(entries: Entries, context: OutputContext) -> list[bytes]:
        return [
            b"%08x %02x %02x %08x %08x %02x %08x "
            % (first, prio, ord(state or was), cpu, pid, next_prio, ord(is_now))
            for first, prio, was, cpu, pid, next_prio, is_now in _ctxwake_fields(entries)
        ]

    return hex_text


def _ctxwake_bin(entries: Entries, context: OutputContext) -> list[bytes]:
    texts = []
    for index in range(len(entries)):
        data = entries.payload(index)
        texts.append(data[8:12] + data[20:22] + data[16:20] + data[12:16] + data[22:24])
    return texts


CTX_SWITCH_EVENTS = {
    TRACE_CTX: TraceEventFunctions(
        _ctxwake_print("==>"), _ctxwake_raw(""), _ctxwake_hex(""), _ctxwake_bin
    ),
    TRACE_WAKE: TraceEventFunctions(
        _ctxwake_print("  +"), _ctxwake_raw("+"), _ctxwake_hex("+"), _ctxwake_bin
    ),
}
