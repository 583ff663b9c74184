"""A booted Linux: from a file to a machine with a shell in it.

    vmlinuz + init + busybox -> PcMachine -> boot -> snapshot
                                 snapshot -> PcMachine

The snapshot's name is a hash of all that goes in, so a changed kernel, program or version of ours
is booted anew.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from emulated_kernel.errors import EmulatedKernelError, ImageError
from emulated_kernel.linux import acpi, boot_params, snapshot
from emulated_kernel.linux.agent import Agents
from emulated_kernel.linux.archive import Archive, host_archive
from emulated_kernel.linux.boot_params import load_kernel
from emulated_kernel.linux.guest_clock import GuestRate
from emulated_kernel.linux.pc import PcMachine
from emulated_kernel.linux.shell import Shell
from emulated_kernel.linux.snapshot import Snapshot, SnapshotError
from emulated_kernel.linux.vmlinux import Vmlinux

log = logging.getLogger(__name__)

BOOT_TIMEOUT_S = 300.0
_STALL_S = 60.0  # of a console on which nothing happens
COMMAND_LINE = (
    "console=ttyS0 8250.nr_uarts=2 noapic nokaslr mitigations=off"
    " tsc=reliable no_timer_check panic=-1 random.trust_cpu=off"
)
_ALONE, _SEVERAL = "nolapic acpi=off nosmp", "pnpacpi=off pci=off"
_POLL_S = 0.2
_KNOWN_AFTER_S, _EXACT_AFTER_S = 0.01, 0.05  # how fast the host's counter runs


@dataclass(frozen=True, slots=True)
class LinuxGuest:
    """A guest that runs. `was_restored` tells that it came from a snapshot."""

    vmlinux: Vmlinux
    machine: PcMachine
    shell: Shell
    agents: Agents
    was_restored: bool
    start_s: float

    def close(self) -> None:
        """Switch it off."""
        self.machine.close()


def start(
    vmlinux: Vmlinux,
    *,
    cache: Path | None,
    progress: Callable[[str], None] = lambda text: None,
    native: bool | None = None,
    cpus: int = 1,
    is_virtual: bool = False,
) -> LinuxGuest:
    """Restore the kernel from its snapshot in `cache`, or boot it and leave one there.

    `is_virtual`: its time is not the host's (guest_clock.py). Raises ImageError for a kernel that
    does not come up.
    """
    began = time.monotonic()
    rate = GuestRate(is_virtual=is_virtual)
    sources = _sources()
    archive = host_archive(cache, sources)
    file = None
    if cache is not None:
        file = cache / f"{_key(vmlinux, archive, sources, cpus, is_virtual)}{snapshot.SUFFIX}"
        restored = _restore(vmlinux, file, native, cpus, rate, is_virtual)
        if restored is not None:
            return LinuxGuest(vmlinux, *restored, True, time.monotonic() - began)
    progress(f"booting Linux {vmlinux.release}")
    guest = _boot(vmlinux, archive.make(), progress, native, cpus, rate, is_virtual)
    log.debug("Linux %s booted in %.1f s", vmlinux.release, time.monotonic() - began)
    if file is not None:
        _save(*guest, file)
    return LinuxGuest(vmlinux, *guest, False, time.monotonic() - began)


def _save(machine: PcMachine, shell: Shell, agents: Agents, file: Path) -> None:
    try:
        machine.run(lambda: snapshot.save(machine, shell, agents, file))
    except OSError as error:
        log.warning("no snapshot is kept: %s: %s", file.parent, error.strerror)


def _key(vmlinux: Vmlinux, archive: Archive, sources: str, cpus: int, is_virtual: bool) -> str:
    text = f"{vmlinux.digest} {archive.digest} {sources} {COMMAND_LINE} {cpus} {is_virtual}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _sources() -> str:
    """A digest of the code on which a guest's state depends."""
    content = hashlib.sha256()
    here = Path(__file__).parent
    for source in sorted(
        [*here.rglob("*.py"), *here.glob("*.S"), *(here.parent / "machine").glob("*.*")]
    ):
        if source.is_file():
            content.update(source.read_bytes())
    return content.hexdigest()


_Parts = tuple[PcMachine, Shell, Agents]


def _restore(
    vmlinux: Vmlinux,
    file: Path,
    native: bool | None,
    cpus: int,
    rate: GuestRate,
    is_virtual: bool,
) -> _Parts | None:
    try:
        with closing(Snapshot(file)) as kept:
            return _restored(vmlinux, kept, native, cpus, rate, is_virtual)
    except FileNotFoundError:
        return None
    except SnapshotError as error:
        log.warning("booting anew: %s: %s", file, error)
        return None


def _restored(
    vmlinux: Vmlinux,
    kept: Snapshot,
    native: bool | None,
    cpus: int,
    rate: GuestRate,
    is_virtual: bool,
) -> _Parts:
    machine = PcMachine(tsc_khz=kept.tsc_khz, cpus=cpus, is_virtual=is_virtual, native=native)
    try:
        shell, agents = Shell(machine), Agents(machine, vmlinux)
        if not kept.is_for(rate.khz(_KNOWN_AFTER_S)):
            raise SnapshotError("made where time went at another speed")
        machine.run(lambda: kept.restore(machine, shell, agents))
        machine.power_on()
    except BaseException:
        machine.close()
        raise
    return machine, shell, agents


def _boot(
    vmlinux: Vmlinux,
    archive: bytes,
    progress: Callable[[str], None],
    native: bool | None,
    cpus: int,
    rate: GuestRate,
    is_virtual: bool,
) -> _Parts:
    khz = rate.khz(_EXACT_AFTER_S)
    machine = PcMachine(tsc_khz=khz, cpus=cpus, is_virtual=is_virtual, native=native)
    try:
        shell, agents = Shell(machine), Agents(machine, vmlinux)
        watch = _Watch(progress)
        machine.console.on_line = watch.line
        # Loops a jiffy takes, which a kernel would measure: 1000/HZ of the counter's rate, halved.
        line = f"{COMMAND_LINE} {_ALONE if cpus == 1 else _SEVERAL} lpj={khz * 2}"
        rsdp = 0 if cpus == 1 else acpi.RSDP

        def load() -> None:
            ram = memoryview(machine.memory.ram)
            load_kernel(ram, vmlinux, archive, line, rsdp=rsdp)
            if rsdp:
                acpi.write_tables(ram, cpus)

        machine.run(load)
        machine.cpu.boot_state(
            vmlinux.entry,
            boot_params.BOOT_PARAMS,
            boot_params.TABLES,
            boot_params.GDT,
            boot_params.STACK_TOP,
        )
        machine.time.tsc = 0
        machine.power_on()
        _wait(machine, shell, agents, watch)
        machine.console.on_line = lambda line: None
    except EmulatedKernelError as error:
        machine.close()
        raise ImageError(f"{vmlinux.name}: {error}") from error
    except BaseException:
        machine.close()
        raise
    return machine, shell, agents


class _Watch:
    """When the console last said something, and what."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.last = time.monotonic()
        self.text = ""
        self._progress = progress

    def line(self, line: bytes) -> None:
        self.last = time.monotonic()
        self.text = line.decode("utf-8", "replace").strip()
        if self.text:
            self._progress(self.text)


def _wait(machine: PcMachine, shell: Shell, agents: Agents, watch: _Watch) -> None:
    """Until there is a shell, or is known to be none, and an agent. Raises EmulatedKernelError."""

    def is_up() -> bool:
        return (shell.is_ready or shell.is_missing) and agents.is_ready and agents.is_at_rest()

    end = time.monotonic() + BOOT_TIMEOUT_S
    while not shell.wait(is_up, _POLL_S):
        now = time.monotonic()
        if now > end or now - watch.last > _STALL_S:
            at = machine.run(lambda: machine.cpu.rip)
            said = f", last it said: {watch.text}" if watch.text else ", it said nothing"
            raise ImageError(f"its boot hangs at {at:#x}{said}")
