"""A function's BPF-style trampoline: programs before it and after it (kernel/bpf/trampoline.c).

    bpf_trampoline_link_prog → bpf_trampoline_update → arch_prepare_bpf_trampoline
                                                     → register_fentry, modify_fentry

The trampoline is the target of a direct call and is put together from the parts of the template in
ftracefs/guest/bpf_trampoline.S, whose programs are guest functions; no BPF is translated. With a
program for the function's exit it calls the function itself. Normally the address is in the call;
beside a live patch the function is taken from the stack, where klp_ftrace_handler has put the
replacement, and the trampoline is made anew whenever that changes (`bpf_tramp_ftrace_ops_func`).
"""

from __future__ import annotations

import errno
import struct
from enum import Enum, IntFlag

import numpy as np

from emulated_kernel.assembler import Symbol
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.text_poke import CALL_INSN_SIZE, text_gen_call
from ftracefs.errors import TracefsError
from ftracefs.ftrace.direct import (
    modify_ftrace_direct,
    register_ftrace_direct,
    unregister_ftrace_direct,
)
from ftracefs.ftrace.hash_update import ftrace_location, ftrace_set_filter_ips
from ftracefs.ftrace.ops import FtraceOps, OpsCommand
from ftracefs.ftrace.rcu_tasks import reap_trampolines
from ftracefs.ftrace.state import FtraceState

_LEAVE_RET = bytes.fromhex("c9c3")
_MOV_RAX_IMM32 = bytes.fromhex("48c7c0")  # sign-extended: kernel text has such addresses
_NOP = b"\x90"


class BpfAttachType(Enum):
    """When a program runs."""

    BPF_TRACE_FENTRY = "fentry"
    BPF_TRACE_FEXIT = "fexit"


class BpfTrampFlags(IntFlag):
    """What a trampoline does besides running programs."""

    CALL_ORIG = 1 << 1
    ORIG_STACK = 1 << 5
    SHARE_IPMODIFY = 1 << 6


class BpfTrampoline:
    """struct bpf_trampoline of the function at `function`, which must have a call site."""

    def __init__(self, state: FtraceState, function: int) -> None:
        site = ftrace_location(state, function)
        if not site:
            raise TracefsError(errno.EINVAL, "the function cannot be traced")
        self.state = state
        self.site = site
        self.name = f"bpf_trampoline_{site & 0xFFFFFFFF}"
        self.flags = BpfTrampFlags(0)
        self.progs: dict[BpfAttachType, list[int]] = {kind: [] for kind in BpfAttachType}
        self.cur_image = 0
        self._size = 0
        self.fops = FtraceOps(state.memory, 0, name=self.name)
        self.fops.ops_func = self.bpf_tramp_ftrace_ops_func
        ftrace_set_filter_ips(state, self.fops, [site])

    # --- programs --------------------------------------------------------------------------------

    def bpf_trampoline_link_prog(self, kind: BpfAttachType, prog: int) -> None:
        """Have the guest function at `prog` run from the next call on, behind those of its kind."""
        if prog in self.progs[kind]:
            raise TracefsError(errno.EBUSY, "the program is attached")
        self.progs[kind].append(prog)
        try:
            self.bpf_trampoline_update()
        except TracefsError:
            self.progs[kind].remove(prog)
            raise

    def bpf_trampoline_unlink_prog(self, kind: BpfAttachType, prog: int) -> None:
        """Have it run no more; with the last one the function is left alone."""
        if prog not in self.progs[kind]:
            raise TracefsError(errno.ENOENT, "the program is not attached")
        self.progs[kind].remove(prog)
        self.bpf_trampoline_update()

    def bpf_trampoline_update(self) -> None:
        """Make the trampoline that the programs and flags ask for, and let the function call it."""
        state, old, old_flags = self.state, self.cur_image, self.flags
        if not any(self.progs.values()):
            if old:
                unregister_ftrace_direct(state, self.fops, old)
            self.cur_image = 0
            self.flags = BpfTrampFlags(0)
            self._release_image(old)
            return
        while True:
            self._choose_flags()
            image = self._alloc_image()
            try:
                if old:
                    modify_ftrace_direct(state, self.fops, image)
                else:
                    register_ftrace_direct(state, self.fops, image)
                break
            except TracefsError as error:
                self._release_image(image)
                if error.errno != errno.EAGAIN:
                    self.flags = old_flags
                    raise
        self.cur_image = image
        self._release_image(old)

    def _choose_flags(self) -> None:
        shared = self.flags & BpfTrampFlags.SHARE_IPMODIFY
        self.flags = shared
        if self.progs[BpfAttachType.BPF_TRACE_FEXIT]:
            self.flags |= BpfTrampFlags.CALL_ORIG
            if shared:
                self.flags |= BpfTrampFlags.ORIG_STACK

    # --- beside a live patch ---------------------------------------------------------------------

    def bpf_tramp_ftrace_ops_func(self, _ops: FtraceOps, command: OpsCommand) -> int:
        """An IPMODIFY op is, comes or goes on the function: call what it leaves on the stack."""
        fixed_call = self.flags & (BpfTrampFlags.CALL_ORIG | BpfTrampFlags.ORIG_STACK) == (
            BpfTrampFlags.CALL_ORIG
        )
        if command is OpsCommand.FTRACE_OPS_CMD_ENABLE_SHARE_IPMODIFY_SELF:
            # From inside register_ftrace_direct, which is done again with another image.
            if not fixed_call:
                return 0
            if self.flags & BpfTrampFlags.SHARE_IPMODIFY:
                return -errno.EBUSY
            self.flags |= BpfTrampFlags.SHARE_IPMODIFY
            return -errno.EAGAIN
        if command is OpsCommand.FTRACE_OPS_CMD_ENABLE_SHARE_IPMODIFY_PEER:
            self.flags |= BpfTrampFlags.SHARE_IPMODIFY
            again = fixed_call
        else:
            self.flags &= ~BpfTrampFlags.SHARE_IPMODIFY
            again = bool(self.flags & BpfTrampFlags.ORIG_STACK)
        if again:
            self.bpf_trampoline_update()
        return 0

    # --- machine code ----------------------------------------------------------------------------

    def _alloc_image(self) -> int:
        """A trampoline in memory; kallsyms and emulator/trampolines know it."""
        state = self.state
        image = state.trampoline_pages.alloc_tramp(len(self.arch_prepare_bpf_trampoline(self.site)))
        code = self.arch_prepare_bpf_trampoline(image)
        state.text_poke.text_poke_copy(image, code)
        state.direct_trampolines[image] = (len(code), self.name)
        symbol = Symbol(self.name, image, len(code), "bpf", "t")
        state.kallsyms.add(f"{self.name}@{image:x}", [symbol])
        return image

    def _release_image(self, image: int) -> None:
        state = self.state
        if image:
            size, _ = state.direct_trampolines.pop(image)
            state.kallsyms.remove(f"{self.name}@{image:x}")
            state.dead_trampolines.append((image, size))
            reap_trampolines(state)

    def _part(self, start: str, end: str) -> bytes:
        labels = self.state.labels
        at = labels[f"bpf_trampoline{start}"]
        return self.state.memory.read(at, labels[f"bpf_trampoline{end}"] - at)

    def arch_prepare_bpf_trampoline(self, image: int) -> bytes:
        """The code of the trampoline if it stands at `image`."""
        code = bytearray(self._part("", "_ip"))
        ip = _MOV_RAX_IMM32 + struct.pack("<i", self.site - (1 << 64))
        code += ip + _NOP * (len(self._part("_ip", "_ip_end")) - len(ip))
        code += self._part("_ip_end", "_fentry")
        self._invoke_bpf(code, image, BpfAttachType.BPF_TRACE_FENTRY)
        code += self._part("_fentry_end", "_orig")
        if not self.flags & BpfTrampFlags.CALL_ORIG:
            return bytes(code) + _LEAVE_RET
        if self.flags & BpfTrampFlags.ORIG_STACK:
            code += self._part("_orig", "_orig_end")
        else:
            code += _call(image + len(code), self.site + CALL_INSN_SIZE)
        code += self._part("_orig_end", "_fexit")
        self._invoke_bpf(code, image, BpfAttachType.BPF_TRACE_FEXIT)
        code += self._part("_fexit_end", "_end")
        return bytes(code)

    def _invoke_bpf(self, code: bytearray, image: int, kind: BpfAttachType) -> None:
        part = self._part(f"_{kind.value}", f"_{kind.value}_end")
        before = part[:-CALL_INSN_SIZE]
        if part[len(before)] != 0xE8:
            raise EmulatedKernelError(f"the template of {kind.value} does not end in a call")
        for prog in self.progs[kind]:
            code += before
            code += _call(image + len(code), prog)


def _call(site: int, target: int) -> bytes:
    return text_gen_call(np.array([site], dtype=np.uint64), target).tobytes()
