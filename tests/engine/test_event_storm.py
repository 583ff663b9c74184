"""Events of several trace arrays, switched at random, against a model of who should record what."""

from __future__ import annotations

import random

from support.events import bring, events, process
from support.shell import Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.text_poke import JMP32_INSN_OPCODE, NOP5
from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory
from ftracefs.trace.events.table import EVENT_CALLS

CALLS = [call for call in EVENT_CALLS if call.can_be_enabled]
STEPS = 400
INSTANCES = ("a", "b", "c")


class Storm:
    """`enabled` is the model: for each trace array, by the path of its directory, its events."""

    def __init__(self, shell: Shell, seed: int) -> None:
        self.shell = shell
        self.choose = random.Random(seed)
        self.enabled: dict[str, set[str]] = {"": set()}
        self.tasks = [process(shell, 2000 + i, f"task{i}") for i in range(3)]
        shell.echo("norecord-cmd", "trace_options")  # which would hang in probes of its own
        self.instances = shell.node("instances")

    def array(self) -> str:
        return self.choose.choice(sorted(self.enabled))

    def by_word(self) -> None:
        """A word into set_event: an event, a system, everything; on or off."""
        where, call = self.array(), self.choose.choice(CALLS)
        word, hit = self.choose.choice(
            [
                (f"{call.system}:{call.name}", {call.name}),
                (call.name, {call.name}),
                (f"{call.system}:*", {c.name for c in CALLS if c.system == call.system}),
                ("*:*", {c.name for c in CALLS}),
            ]
        )
        off = self.choose.random() < 0.5
        self.shell.echo("!" * off + word, f"{where}set_event", append=True)
        self.enabled[where] = self.enabled[where] - hit if off else self.enabled[where] | hit

    def by_file(self) -> None:
        """0 or 1 into an enable file."""
        where, call, value = self.array(), self.choose.choice(CALLS), self.choose.randrange(2)
        path, hit = self.choose.choice(
            [
                (f"{call.system}/{call.name}/", {call.name}),
                (f"{call.system}/", {c.name for c in CALLS if c.system == call.system}),
                ("", {c.name for c in CALLS}),
            ]
        )
        self.shell.echo(str(value), f"{where}events/{path}enable")
        self.enabled[where] = self.enabled[where] | hit if value else self.enabled[where] - hit

    def truncate(self) -> None:
        where = self.array()
        self.shell.echo("", f"{where}set_event")
        self.enabled[where] = set()

    def come_or_go(self) -> None:
        """An instance is made, or one goes with whatever it has enabled."""
        name = self.choose.choice(INSTANCES)
        where = f"instances/{name}/"
        assert isinstance(self.instances, Directory)
        if where in self.enabled:
            self.shell.rmdir(f"instances/{name}")
            del self.enabled[where]
        else:
            self.shell.mkdir(f"instances/{name}")
            self.enabled[where] = set()

    def refused(self) -> None:
        """What is refused changes nothing."""
        path, text = self.choose.choice(
            [("set_event", "sched:nosuch"), ("events/enable", "2"), ("events/irq/enable", "x")]
        )
        try:
            self.shell.echo(text, f"{self.array()}{path}", append=True)
        except TracefsError:
            return
        raise AssertionError(f"{path} took {text}")

    def step(self) -> None:
        actions = [self.by_word] * 4 + [self.by_file] * 4
        self.choose.choice([*actions, self.truncate, self.come_or_go, self.refused])()

    # --- what must hold --------------------------------------------------------------------------

    def check_text(self) -> None:
        """Each site is a nop or a jump, and each array of probes has one for each trace array."""
        memory, tracing = self.shell.machine.memory, self.shell.session.tracing
        for call in CALLS:
            wanted = sum(call.name in names for names in self.enabled.values())
            for site in tracing.tracepoints.sites(call.name):
                code = memory.read(site, 5)
                assert code == NOP5 if not wanted else code[0] == JMP32_INSN_OPCODE, call.name
            at = memory.u64(
                tracing.image.labels[f"__tracepoint_{call.name}"] + CONSTANTS["TP_FUNCS"]
            )
            count = 0
            while at and memory.u64(at + CONSTANTS["TPF_FUNC"]):
                count += 1
                at += CONSTANTS["TPF_SIZE"]
            assert count == wanted, call.name

    def check_records(self) -> None:
        """The same happening is recorded by every trace array as far as it wants to know."""
        for where in self.enabled:
            self.shell.echo("", f"{where}trace")
        for task in self.choose.sample(self.tasks, 3):
            bring(self.shell, task)
        seen = {
            where: [(event.name, event.text) for event in events(self.shell, f"{where}trace")]
            for where in self.enabled
        }
        for where, names in self.enabled.items():
            assert {name for name, _ in seen[where]} <= names
            for other, others in self.enabled.items():
                both = names & others
                assert [e for e in seen[where] if e[0] in both] == [
                    e for e in seen[other] if e[0] in both
                ]
            if "sched_switch" in names:
                assert any(name == "sched_switch" for name, _ in seen[where])


def test_whatever_is_switched_text_probes_and_records_are_as_wanted() -> None:
    with isolated() as shell:
        address, data = shell.session.image.segments[".text"]
        before = shell.machine.memory.read(address, len(data))
        storm = Storm(shell, seed=61)
        for number in range(STEPS):
            storm.step()
            for where, names in storm.enabled.items():
                shown = shell.cat(f"{where}set_event").splitlines()
                assert {line.partition(":")[2] for line in shown} == names
            storm.check_text()
            if number % 10 == 0:
                storm.check_records()
        for where in list(storm.enabled):
            shell.echo("0", f"{where}events/enable")
        assert shell.machine.memory.read(address, len(data)) == before
