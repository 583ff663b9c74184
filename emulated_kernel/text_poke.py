"""The only writer of kernel text once the kernel runs (arch/x86/kernel/alternative.c).

A site is rewritten while other processors may run through it. A processor fetches an instruction
in pieces, so the five bytes cannot simply be stored: somebody would execute half of the old and
half of the new. From nop to call, as text_poke_bp_batch does it for all sites of a vector at once:

    0f 1f 44 00 00      before
    cc 1f 44 00 00      1. INT3 over each first byte; sync
    cc 34 12 00 00      2. the other bytes, which nobody can reach any more; sync
    e8 34 12 00 00      3. the first byte of the new instruction; sync

Sync makes every vCPU forget what it translated. Between the steps the other vCPUs run, and one that
meets an INT3 is given the effect of the *new* instruction by `poke_int3_handler`. The alternative,
stop_machine, writes all five bytes while no vCPU runs.

All expected bytes are compared before the first byte is written, and each write is read back. Linux
takes at most 256 sites in one vector, which bounds what a processor can meet; that bound is kept
while other vCPUs run guest work, else all sites go in one vector.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.machine import EmulatedMachine, Processor

Addresses = npt.NDArray[np.uint64]
Code = npt.NDArray[np.uint8]  # one row of bytes for each address

NOP5 = bytes.fromhex("0f1f440000")
INT3_INSN_OPCODE = 0xCC
CALL_INSN_OPCODE = 0xE8
JMP32_INSN_OPCODE = 0xE9
JMP8_INSN_OPCODE = 0xEB
RET_INSN_OPCODE = 0xC3
CALL_INSN_SIZE = 5

TP_VEC_MAX = 256
_FLUSH_SINGLY = 512  # above this many sites one range costs less than a flush for each
_REGION_GAP = 1 << 26  # sites further apart than this lie in different mappings
_U64 = (1 << 64) - 1


class PokeMethod(Enum):
    """How live text is written."""

    INT3 = "int3"
    STOP_MACHINE = "stop_machine"


class TextMismatch(EmulatedKernelError):
    """A site does not hold what it is expected to hold; nothing was written."""

    def __init__(self, row: int, address: int, expected: bytes, actual: bytes) -> None:
        super().__init__(f"{address:#x} holds {actual.hex(' ')}, not {expected.hex(' ')}")
        self.row = row
        self.address = address
        self.expected = expected
        self.actual = actual


@dataclass(frozen=True, slots=True)
class _Writes:
    """One phase of a batch: what stood at each address and what stands there now."""

    batch: int
    phase: str
    total: int  # sites of the phase; the arrays hold the last of them
    addresses: Addresses
    before: Code
    after: Code


def text_gen_call(sites: Addresses, targets: Addresses | int) -> Code:
    """`call target` for each site."""
    return text_gen_insn(CALL_INSN_OPCODE, sites, targets)


def text_gen_insn(opcode: int, sites: Addresses, targets: Addresses | int) -> Code:
    """A call or a jump of five bytes to its target for each site."""
    code = np.empty((len(sites), CALL_INSN_SIZE), dtype=np.uint8)
    code[:, 0] = opcode
    distance = np.asarray(targets, dtype=np.uint64) - (sites + np.uint64(CALL_INSN_SIZE))
    signed = distance.view(np.int64)
    if len(sites) and (signed.min() < -(1 << 31) or signed.max() >= 1 << 31):
        raise EmulatedKernelError("a target is out of reach")
    relative = np.ascontiguousarray(signed.astype(np.int32))
    code[:, 1:] = relative.view(np.uint8).reshape(len(sites), 4)
    return code


def same_code(code: bytes, count: int) -> Code:
    """The same instruction for `count` sites."""
    return np.tile(np.frombuffer(code, dtype=np.uint8), (count, 1))


class TextPoke:
    """Writes text of `machine`. To be used on the machine thread only.

    `between_phases` lets the other vCPUs run and is called after each sync; `others_running` tells
    whether they have guest work. `symbolize` names an address for the log.
    """

    def __init__(
        self,
        machine: EmulatedMachine,
        *,
        symbolize: Callable[[int], str] = hex,
        log_size: int = 4096,
    ) -> None:
        self.method = PokeMethod.INT3
        self.between_phases: Callable[[], None] = lambda: None
        self.others_running: Callable[[], bool] = lambda: False
        self.symbolize = symbolize
        self.int3_hits = 0
        self.batches = 0
        self.sites_patched = 0
        self.writes = 0
        self._machine = machine
        self._memory = machine.memory
        self._vector: Addresses | None = None
        self._effect: Code = np.zeros((0, CALL_INSN_SIZE), dtype=np.uint8)
        self._log: deque[_Writes] = deque()
        self._log_size = log_size
        self._logged = 0
        for vcpu in machine.cpus:
            vcpu.int3 = self.poke_int3_handler

    # --- looking ---------------------------------------------------------------------------------

    def _at(self, addresses: Addresses, size: int) -> npt.NDArray[np.int64]:
        return self._memory.text_offsets(addresses)[:, None] + np.arange(size)

    def read(self, sites: Addresses, size: int = CALL_INSN_SIZE) -> Code:
        """The bytes at each site."""
        return self._memory.ram_array[self._at(sites, size)]

    def verify(self, sites: Addresses, expected: Code) -> None:
        """Raise TextMismatch for the first site that does not hold what is expected."""
        actual = self.read(sites, expected.shape[1])
        wrong = (actual != expected).any(axis=1)
        if wrong.any():
            row = int(wrong.argmax())
            raise TextMismatch(row, int(sites[row]), expected[row].tobytes(), actual[row].tobytes())

    # --- writing ---------------------------------------------------------------------------------

    def text_poke_early(self, sites: Addresses, old: Code, new: Code) -> None:
        """Rewrite sites that no vCPU has executed yet, checking all of them first."""
        self.verify(sites, old)
        if len(sites):
            self._begin(len(sites))
            self._write("early", sites, new)
            self._flush(np.sort(sites), new.shape[1])

    def text_poke_copy(self, address: int, code: bytes) -> None:
        """Put new code where none is running."""
        site = np.array([address], dtype=np.uint64)
        self._begin(1)
        self._write("copy", site, same_code(code, 1))
        self._flush(site, len(code))

    def text_poke_bp(
        self, address: int, new: bytes, old: bytes | None = None, effect: bytes | None = None
    ) -> None:
        """Rewrite one live instruction; see text_poke_bp_batch."""
        site = np.array([address], dtype=np.uint64)
        codes = (None if code is None else same_code(code, 1) for code in (old, effect))
        self.text_poke_bp_batch(site, same_code(new, 1), *codes)

    def text_poke_bp_batch(
        self, sites: Addresses, new: Code, old: Code | None = None, effect: Code | None = None
    ) -> None:
        """Rewrite live instructions, all of the same length; `old` is compared first if given.

        Who meets an INT3 meanwhile acts as `effect`, which is `new` if not told.
        """
        if self._vector is not None:
            raise EmulatedKernelError("text is being patched already")
        if old is not None:
            self.verify(sites, old)
        effect = new if effect is None else effect
        order = np.argsort(sites, kind="stable")
        sites, new, effect = sites[order], new[order], effect[order]
        if self.method is PokeMethod.STOP_MACHINE:
            if len(sites):
                self._begin(len(sites))
                self._write("stop_machine", sites, new)
                self._sync(sites, new.shape[1])
            return
        step = TP_VEC_MAX if self.others_running() else max(len(sites), 1)
        for start in range(0, len(sites), step):
            part = slice(start, start + step)
            self._poke_vector(sites[part], new[part], effect[part])

    def _poke_vector(self, sites: Addresses, new: Code, effect: Code) -> None:
        size = new.shape[1]
        one = np.uint64(1)
        self._begin(len(sites))
        self._effect, self._vector = effect, sites
        try:
            self._write("int3", sites, same_code(bytes([INT3_INSN_OPCODE]), len(sites)))
            self._sync(sites, size)
            if size > 1:
                self._write("tail", sites + one, new[:, 1:])
                self._sync(sites, size)
            self._write("first", sites, new[:, :1])
            self._sync(sites, size)
        finally:
            self._vector = None

    def _begin(self, sites: int) -> None:
        self.batches += 1
        self.sites_patched += sites

    def _write(self, phase: str, addresses: Addresses, code: Code) -> None:
        ram = self._memory.ram_array
        at = self._at(addresses, code.shape[1])
        before = ram[at]
        ram[at] = code
        if (ram[at] != code).any():
            raise EmulatedKernelError(f"text did not take a write ({phase})")
        self.writes += len(addresses)
        keep = slice(max(0, len(addresses) - self._log_size), None)
        entry = (addresses[keep], before[keep], code[keep].copy())
        self._log.append(_Writes(self.batches, phase, len(addresses), *entry))
        self._logged += len(entry[0])
        while self._logged - len(self._log[0].addresses) >= self._log_size:
            self._logged -= len(self._log.popleft().addresses)

    def _sync(self, sites: Addresses, size: int) -> None:
        """text_poke_sync: every vCPU forgets the old text; then the others have a turn."""
        self._flush(sites, size)
        self.between_phases()

    def _flush(self, sites: Addresses, size: int) -> None:
        """Drop what the vCPUs translated of `sites`, which ascend."""
        if len(sites) <= _FLUSH_SINGLY:
            for site in sites.tolist():
                self._machine.flush_text(site, site + size)
            return
        cuts = np.flatnonzero(np.diff(sites) > np.uint64(_REGION_GAP)) + 1
        for part in np.split(sites, cuts):
            self._machine.flush_text(int(part[0]), int(part[-1]) + size)

    # --- INT3 ------------------------------------------------------------------------------------

    def poke_int3_handler(self, vcpu: Processor, ip: int) -> bool:
        """Act as the instruction that is being written at `ip`; False when none is."""
        if self._vector is None:
            return False
        row = int(np.searchsorted(self._vector, np.uint64(ip)))
        if row == len(self._vector) or int(self._vector[row]) != ip:
            return False
        self.int3_hits += 1
        self._emulate(vcpu, ip, self._effect[row].tobytes())
        return True

    def _emulate(self, vcpu: Processor, ip: int, code: bytes) -> None:
        following = ip + len(code)
        opcode = code[0]
        if opcode == CALL_INSN_OPCODE:
            (rsp,) = vcpu.get("rsp")
            self._memory.set_u64(rsp - 8, following)
            target = following + struct.unpack_from("<i", code, 1)[0]
            vcpu.set(rsp=rsp - 8, rip=target & _U64)
        elif opcode == JMP32_INSN_OPCODE:
            vcpu.set(rip=(following + struct.unpack_from("<i", code, 1)[0]) & _U64)
        elif opcode == JMP8_INSN_OPCODE:
            vcpu.set(rip=(ip + 2 + struct.unpack_from("<b", code, 1)[0]) & _U64)
        elif opcode == RET_INSN_OPCODE:
            (rsp,) = vcpu.get("rsp")
            vcpu.set(rsp=rsp + 8, rip=self._memory.u64(rsp))
        elif code == NOP5:
            vcpu.set(rip=following)
        else:
            raise EmulatedKernelError(f"int3 at {ip:#x} stands for {code.hex(' ')}")

    # --- what was done ---------------------------------------------------------------------------

    def clear_log(self) -> None:
        """Forget the writes; the counters go on."""
        self._log.clear()
        self._logged = 0

    def patch_log(self) -> str:
        """The last writes, oldest first, each with the bytes before and after."""
        lines = [
            f"# text writes: {self.writes}  sites: {self.sites_patched}  batches: {self.batches}"
            f"  int3 hits: {self.int3_hits}  method: {self.method.value}",
            f"#{'batch':>7}  {'phase':<12}  {'address':<16}  {'symbol':<32}  before -> after",
        ]
        for chunk in self._log:
            left_out = chunk.total - len(chunk.addresses)
            if left_out:
                lines.append(f"{chunk.batch:8}  {chunk.phase:<12}  ({left_out} more)")
            rows = zip(chunk.addresses.tolist(), chunk.before, chunk.after, strict=True)
            for address, before, after in rows:
                lines.append(
                    f"{chunk.batch:8}  {chunk.phase:<12}  {address:016x}  "
                    f"{self.symbolize(address):<32}  {_hex(before)} -> {_hex(after)}"
                )
        return "\n".join(lines) + "\n"


def _hex(code: npt.NDArray[np.uint8]) -> str:
    shown = code[:16].tobytes().hex(" ")
    return shown if len(code) <= 16 else f"{shown} … ({len(code)} bytes)"
