"""Where a Linux keeps what the host's own code in it asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from emulated_kernel.errors import ImageError
from emulated_kernel.linux.vmlinux import Vmlinux

# Bits of thread_info's flags (arch/x86/include/asm/thread_info.h), and since they are generic.
GENERIC_TIF_SINCE = (6, 18)
_SIGPENDING, _NOTIFY_SIGNAL = 1 << 2, 1 << 17
_SIGPENDING_GENERIC, _NOTIFY_SIGNAL_GENERIC = 1 << 1, 1 << 2


@dataclass(frozen=True, slots=True)
class AgentOffsets:
    """Offsets in a CPU's area (`current`, `preempt_count`, `top_of_stack`, `rq_nr_running`) and in
    struct task_struct; `signals` are the bits of thread_info's flags that tell of one.
    """

    current: int
    preempt_count: int
    top_of_stack: int
    rq_nr_running: int
    state: int
    exit_state: int
    pid: int
    real_parent: int
    stack_canary: int
    ti_flags: int
    signals: int


def version(release: str) -> tuple[int, int]:
    """`6.1.0-57-amd64` as numbers that can be compared."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def percpu(vmlinux: Vmlinux, variable: str, hot: str) -> int:
    """A per-CPU variable, or in 6.2 to 6.14 the member of pcpu_hot that was in its place."""
    own, shared = (vmlinux.symbols.get(name) for name in (variable, "pcpu_hot"))
    if own is not None:
        return own
    if shared is None:
        raise ImageError(f"no symbol {variable}")
    return shared + vmlinux.btf.offset("pcpu_hot", hot)


def task_member(vmlinux: Vmlinux, *names: str) -> int:
    """A member of struct task_struct: the first of its names, newest first, that this one has."""
    known = (name for name in names if vmlinux.btf.has("task_struct", name))
    return vmlinux.btf.offset("task_struct", next(known, names[-1]))


def _top_of_stack(vmlinux: Vmlinux) -> int:
    """Of the current task's stack: once a member of the task state segment."""
    symbols = vmlinux.symbols
    if symbols.get("cpu_current_top_of_stack") is None and symbols.get("pcpu_hot") is None:
        return vmlinux.symbol("cpu_tss_rw") + vmlinux.btf.offset("tss_struct", "x86_tss.sp1")
    return percpu(vmlinux, "cpu_current_top_of_stack", "top_of_stack")


def agent_offsets(vmlinux: Vmlinux) -> AgentOffsets:
    """Raises ImageError for a kernel of which something needed is not known."""
    btf = vmlinux.btf

    def task(member: str) -> int:
        return btf.offset("task_struct", member)

    is_generic = version(vmlinux.release) >= GENERIC_TIF_SINCE
    return AgentOffsets(
        current=percpu(vmlinux, "current_task", "current_task"),
        preempt_count=percpu(vmlinux, "__preempt_count", "preempt_count"),
        top_of_stack=_top_of_stack(vmlinux),
        rq_nr_running=vmlinux.symbol("runqueues") + btf.offset("rq", "nr_running"),
        state=task_member(vmlinux, "__state", "state"),
        exit_state=task("exit_state"),
        pid=task("pid"),
        real_parent=task("real_parent"),
        stack_canary=task("stack_canary"),
        ti_flags=task("thread_info.flags"),
        signals=(
            _SIGPENDING_GENERIC | _NOTIFY_SIGNAL_GENERIC
            if is_generic
            else _SIGPENDING | _NOTIFY_SIGNAL
        ),
    )
