"""emulator/ops: every registered op, in the order in which the list function asks them.

What can be read from the machine is: where the templates and trampolines call, and how many call
sites lead to each.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from emulated_kernel.text_poke import CALL_INSN_OPCODE, CALL_INSN_SIZE
from ftracefs.files.base import TracefsFile
from ftracefs.files.simple import SeqFile
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace import ops as ops_flags
from ftracefs.ftrace.hashes import FtraceHash, ftrace_hash_empty
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.records import FTRACE_FL_ENABLED
from ftracefs.ftrace.trampolines import arch_ftrace_trampoline_func
from ftracefs.trace.tracing import Tracing

_SHOWN_NAMES = 10
_PREFIX = "FTRACE_OPS_FL_"
_FLAGS = {getattr(ops_flags, n): n.removeprefix(_PREFIX) for n in dir(ops_flags) if _PREFIX in n}


def ops(tracing: Tracing) -> TracefsFile:
    """`emulator/ops`."""
    return SeqFile(lambda: ops_text(tracing.ftrace))


def site_targets(ftrace: Ftrace) -> Counter[int]:
    """Where the call sites lead, read from text: address -> how many."""
    records = ftrace.records
    ips = records.ip[records.has(FTRACE_FL_ENABLED)]
    code = ftrace.text_poke.read(ips)
    calls = code[:, 0] == CALL_INSN_OPCODE
    distance = np.ascontiguousarray(code[calls, 1:]).view(np.int32)[:, 0].astype(np.int64)
    targets = ips[calls] + np.uint64(CALL_INSN_SIZE) + distance.view(np.uint64)
    return Counter(targets.tolist())


def ops_text(ftrace: Ftrace) -> str:
    """The file's text."""
    symbol = ftrace.kallsyms.sprint_symbol
    users = site_targets(ftrace)
    names = {op.address: _name(op) for op in ftrace.ops_list}
    op_word = ftrace.memory.u64(ftrace.labels["function_trace_op"])
    blocks = [
        f"ftrace_caller: calls {symbol(addr_from_call(ftrace, ftrace.labels['ftrace_call']))}"
        f" with {names.get(op_word, 'ftrace_list_end')},"
        f" called from {_sites(users[ftrace.ftrace_addr])};"
        f" ftrace_regs_caller: from {_sites(users[ftrace.ftrace_regs_addr])}\n"
    ]
    blocks += [_op_text(ftrace, op, users) for op in ftrace.ops_list]
    return "\n".join(blocks)


def _name(op: FtraceOps) -> str:
    return op.name or "an op"


def _sites(count: int) -> str:
    return f"{count} site" if count == 1 else f"{count} sites"


def _op_text(ftrace: Ftrace, op: FtraceOps, users: Counter[int]) -> str:
    symbol = ftrace.kallsyms.sprint_symbol
    rows = {
        "flags": " ".join(name for bit, name in sorted(_FLAGS.items()) if op.flags & bit),
        "callback": symbol(op.func),
        "filter": _hash_text(ftrace, op.func_hash.filter_hash, "all functions"),
        "notrace": _hash_text(ftrace, op.func_hash.notrace_hash, "none"),
    }
    if op.flags & ops_flags.FTRACE_OPS_FL_DIRECT:
        target = op.direct_call
        rows["direct call"] = f"{symbol(target)}, called from {_sites(users[target])}"
    elif op.trampoline:
        called = symbol(arch_ftrace_trampoline_func(ftrace, op, 0))
        rows["trampoline"] = (
            f"{op.trampoline:#x}, {op.trampoline_size} bytes, calls {called},"
            f" called from {_sites(users[op.trampoline])}"
        )
    lines = (f"    {name + ':':<12} {value}\n" for name, value in rows.items())
    return f"{_name(op)} at {op.address:#x}\n" + "".join(lines)


def _hash_text(ftrace: Ftrace, hash: FtraceHash, empty: str) -> str:
    if ftrace_hash_empty(hash):
        return empty
    records = ftrace.records
    rows = np.flatnonzero(records.in_hash(hash))
    shown = b" ".join(records.lines(rows[:_SHOWN_NAMES])).decode("utf-8", "replace")
    more = f" … ({len(rows)})" if len(rows) > _SHOWN_NAMES else ""
    return shown + more or "nothing that is loaded"
