"""The events of interrupts and of idle CPUs on the built-in kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.events import bring, events, process, texts
from support.guest import Guest
from support.shell import Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS

TICK_NS = 4_000_000


def tick(shell: Shell, cpu: int = 0) -> None:
    """A timer interrupt, a tick later."""
    machine = shell.machine
    clock = machine.cpus[cpu].word("CLOCK_PTR")
    machine.memory.set_u64(clock, machine.memory.u64(clock) + TICK_NS)
    vcpu = machine.cpus[cpu]
    machine.run(lambda: machine.interrupt(vcpu, "asm_sysvec_apic_timer_interrupt"))


@pytest.fixture
def quiet() -> Iterator[Shell]:
    """A session whose task on CPU 0 is at rest, and whose CPU 1 is idle."""
    with isolated() as shell:
        bring(shell, process(shell, 2000, "task"))
        yield shell


def test_a_softirq_that_is_raised_runs_behind_the_next_interrupt(quiet: Shell) -> None:
    quiet.echo("irq", "set_event")
    quiet.machine.call("__raise_softirq_irqoff", 1)
    assert texts(quiet, "softirq_raise") == ["vec=1 [action=TIMER]"]
    assert texts(quiet, "softirq_entry") == []
    tick(quiet)
    quiet.echo("", "set_event")
    told = [(event.name, event.pid, event.text, event.state) for event in events(quiet)[1:]]
    assert told == [
        ("softirq_entry", 2000, "vec=1 [action=TIMER]", "..s.."),
        ("softirq_exit", 2000, "vec=1 [action=TIMER]", "..s.."),
    ]


def test_every_softirq_has_the_name_linux_gives_it(quiet: Shell) -> None:
    quiet.echo("softirq_raise", "set_event")
    file = quiet.session.tracing.global_trace.events.find_event_file("irq", "softirq_raise")
    assert file is not None
    probe = quiet.session.tracing.label("trace_event_raw_event_softirq")
    for vec in range(11):
        quiet.machine.call(probe, file.address, vec)
    names = [
        *("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL"),
        *("TASKLET", "SCHED", "HRTIMER", "RCU", "0xa"),
    ]
    expected = [f"vec={vec} [action={name}]" for vec, name in enumerate(names)]
    assert texts(quiet, "softirq_raise") == expected


HANDLERS = """
.text
FUNC_NOTRACE handled
    mov eax, IRQ_HANDLED
    ret
ENDFUNC handled
FUNC_NOTRACE unhandled
    mov eax, IRQ_NONE
    ret
ENDFUNC unhandled
"""


def test_each_handler_of_an_interrupt_is_told(quiet: Shell) -> None:
    """Two handlers share an interrupt; the second one's device has interrupted."""
    labels = Guest.load(_Loader(quiet), HANDLERS)  # type: ignore[arg-type]
    machine, memory = quiet.machine, quiet.machine.memory
    actions = []
    for index, (name, handler) in enumerate((("disk0", "unhandled"), ("net0", "handled"))):
        action = machine.alloc(CONSTANTS["PAGE_BYTES"])
        memory.write(action + 256, name.encode() + b"\0")
        memory.set_u64(action, labels[handler])
        memory.set_u64(action + CONSTANTS["IRQACTION_NAME"], action + 256)
        actions.append(action)
        if index:
            memory.set_u64(actions[0] + 16, action)
    descriptor = machine.alloc(CONSTANTS["PAGE_BYTES"])
    memory.set_u32(descriptor + 4, 5)
    memory.set_u64(descriptor + 16, actions[0])
    quiet.echo("irq_handler_entry irq_handler_exit", "set_event")
    assert machine.call("__handle_irq_event_percpu", descriptor) == 1
    quiet.echo("", "set_event")
    assert [(event.name, event.text) for event in events(quiet)] == [
        ("irq_handler_entry", "irq=5 name=disk0"),
        ("irq_handler_exit", "irq=5 ret=unhandled"),
        ("irq_handler_entry", "irq=5 name=net0"),
        ("irq_handler_exit", "irq=5 ret=handled"),
    ]


class _Loader:
    """As much of a Guest as its `load` needs."""

    def __init__(self, shell: Shell) -> None:
        self.image = shell.session.image
        self.machine = shell.machine

    _assemble = Guest._assemble


def test_an_idle_cpu_is_told_when_it_rests_and_when_it_is_awake(quiet: Shell) -> None:
    tick(quiet, cpu=1)
    quiet.echo("cpu_idle", "set_event")
    tick(quiet, cpu=1)
    told = [(event.pid, event.cpu, event.text) for event in events(quiet)]
    assert told == [
        (0, 1, "state=4294967295 cpu_id=1"),
        (0, 1, "state=1 cpu_id=1"),
    ]
    asleep = [event.state[0] for event in events(quiet)]
    assert asleep == [".", "d"]


def test_a_cpu_goes_idle_when_its_last_task_sleeps(quiet: Shell) -> None:
    quiet.echo("cpu_idle sched_switch", "set_event")
    machine, vcpu = quiet.machine, quiet.machine.cpus[0]
    machine.run(lambda: machine.park(vcpu))
    names = [event.name for event in events(quiet) if event.cpu == 0]
    assert names == ["sched_switch", "cpu_idle"]
    quiet.echo("", "trace")
    bring(quiet, process(quiet, 2000, "task"))
    names = [event.name for event in events(quiet) if event.cpu == 0]
    assert names == ["cpu_idle", "sched_switch"]
