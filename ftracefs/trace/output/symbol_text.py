"""Addresses as the trace shows them (seq_print_ip_sym), each looked up once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from emulated_kernel.kallsyms import Kallsyms
from ftracefs.trace.options import TraceIter

T = TypeVar("T")

# The options that change what is printed for an address.
ADDRESS_FLAGS = TraceIter.SYM_OFFSET | TraceIter.SYM_ADDR
SYM_FLAGS = ADDRESS_FLAGS | TraceIter.PRINT_PARENT
_KEPT = 1 << 17
_KERNEL_HALF = 0xFFFFFFFF00000000


class _Calls(dict[int, bytes]):
    """`function <-caller` and a newline, by the low halves of both addresses."""

    def __init__(self, texts: SymbolText, flags: TraceIter) -> None:
        super().__init__()
        self._texts = texts
        self._flags = flags

    def __missing__(self, key: int) -> bytes:
        if len(self) >= _KEPT:
            self.clear()
        ip, parent_ip = key >> 32 | _KERNEL_HALF, key & 0xFFFFFFFF | _KERNEL_HALF
        text = self[key] = self._texts.call(ip, parent_ip, self._flags)
        return text


class _Addresses(dict[int, bytes]):
    """Addresses as symbols, as the options have it."""

    def __init__(self, texts: SymbolText, flags: TraceIter) -> None:
        super().__init__()
        self._texts = texts
        self._flags = flags

    def __missing__(self, ip: int) -> bytes:
        if len(self) >= _KEPT:
            self.clear()
        text = self[ip] = self._texts.look_up(ip, self._flags)
        return text


class SymbolText:
    """The texts of addresses, kept until the symbols change."""

    def __init__(self, kallsyms: Kallsyms) -> None:
        self._kallsyms = kallsyms
        self._generation = kallsyms.generation
        self._addresses: dict[TraceIter, _Addresses] = {}
        self._calls: dict[TraceIter, _Calls] = {}
        self._derived: dict[type[object], object] = {}

    def _check(self) -> None:
        if self._generation != self._kallsyms.generation:
            self._generation = self._kallsyms.generation
            self._addresses = {}
            self._calls = {}
            self._derived = {}

    def derived(self, kind: type[T]) -> T:
        """What somebody makes of symbols (`kind(self)`), kept as long as they do not change."""
        self._check()
        found = self._derived.get(kind)
        if not isinstance(found, kind):
            found = self._derived[kind] = kind(self)  # type: ignore[call-arg]
        return found

    def sprint_ps(self, ip: int) -> str:
        """An address as %ps prints it."""
        return self._kallsyms.sprint_symbol_no_offset(ip)

    def sprint_pS(self, ip: int) -> str:
        """An address as %pS prints it."""
        return self._kallsyms.sprint_symbol(ip)

    def calls(self, flags: TraceIter) -> _Calls:
        """Texts of calls between functions above 0xffffffff00000000, by `ip << 32 | parent_ip`."""
        self._check()
        wanted = flags & SYM_FLAGS
        if wanted not in self._calls:
            self._calls[wanted] = _Calls(self, wanted)
        return self._calls[wanted]

    def call(self, ip: int, parent_ip: int, flags: TraceIter) -> bytes:
        """A function record without its context (print_fn_trace)."""
        text = self.seq_print_ip_sym(ip, flags)
        if flags & TraceIter.PRINT_PARENT and parent_ip:
            text += b" <-" + self.seq_print_ip_sym(parent_ip, flags)
        return text + b"\n"

    def addresses(self, flags: TraceIter) -> Mapping[int, bytes]:
        """Texts of addresses, as symbols, with their offset or the address as the options say."""
        self._check()
        wanted = flags & ADDRESS_FLAGS
        if wanted not in self._addresses:
            self._addresses[wanted] = _Addresses(self, wanted)
        return self._addresses[wanted]

    def seq_print_ip_sym(self, ip: int, flags: TraceIter) -> bytes:
        """One of them."""
        return self.addresses(flags)[ip]

    def look_up(self, ip: int, flags: TraceIter) -> bytes:
        """The same without a memory."""
        if ip == 0:
            text = "0"
        elif (location := self._kallsyms.kallsyms_lookup(ip)) is None:
            text = f"0x{ip:08x}"
        else:
            text = str(location) if flags & TraceIter.SYM_OFFSET else location.name
        if ip and flags & TraceIter.SYM_ADDR:
            text += f" <{ip:016x}>"
        return text.encode()
