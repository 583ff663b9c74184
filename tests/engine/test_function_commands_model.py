"""Random commands and calls, beside a model of what they do that knows no ops and no hashes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.shell import Shell

FUNCTIONS = ("gcd", "lcm", "int_sqrt")
CALLS = {"gcd 4 6": ("gcd",), "lcm 4 6": ("lcm", "gcd"), "int_sqrt 9": ("int_sqrt",)}
KINDS = ("traceon", "traceoff", "stacktrace", "traceon:", "traceoff:", "stacktrace:")


class Model:
    """What Linux does, in words: kinds of commands, the one set last in front."""

    def __init__(self) -> None:
        self.on = True
        self.kinds: dict[str, dict[str, int]] = {}
        self.stacks = 0

    def set(self, kind: str, function: str, count: int) -> None:
        if kind not in self.kinds:
            self.kinds = {kind: {}, **self.kinds}
        self.kinds[kind][function] = count

    def has(self, kind: str, function: str) -> bool:
        return function in self.kinds.get(kind, {})

    def take_back(self, kind: str, function: str) -> None:
        del self.kinds[kind][function]
        if not self.kinds[kind]:
            del self.kinds[kind]

    def call(self, function: str) -> None:
        for kind, held in self.kinds.items():
            if function in held:
                self._act(kind, held, function)

    def _act(self, kind: str, held: dict[str, int], function: str) -> None:
        what, counted, _ = kind.partition(":")
        if what == "stacktrace":
            if counted and (not self.on or not held[function]):
                return
            self.stacks += self.on
        else:
            wanted = what == "traceon"
            if self.on == wanted or (counted and not held[function]):
                return
            self.on = wanted
        if counted:
            held[function] -= 1

    def lines(self) -> Iterator[str]:
        for kind, held in self.kinds.items():
            what, counted, _ = kind.partition(":")
            for function, count in held.items():
                yield f"{function}:{what}:" + (f"count={count}" if counted else "unlimited")


@pytest.mark.parametrize("seed", range(4))
def test_commands_do_what_the_model_says(shell: Shell, seed: int) -> None:
    choose = random.Random(seed)
    model = Model()
    text_after_boot = shell.machine.memory.read(*text_range(shell))
    for _ in range(120):
        kind, function = choose.choice(KINDS), choose.choice(FUNCTIONS)
        action = choose.random()
        if action < 0.35 and not model.has(kind, function):
            count = choose.randrange(4)
            parameter = f"{count}" if kind.endswith(":") else ""
            shell.echo(f"{function}:{kind}{parameter}", "set_ftrace_filter", append=True)
            model.set(kind, function, count)
        elif action < 0.5 and model.has(kind, function):
            parameter = "0" if kind.endswith(":") else ""
            shell.echo(f"!{function}:{kind}{parameter}", "set_ftrace_filter", append=True)
            model.take_back(kind, function)
        elif action < 0.6:
            model.on = choose.random() < 0.5
            shell.echo(f"{model.on:d}", "tracing_on")
        else:
            call = choose.choice(list(CALLS))
            shell.echo(call, "emulator/call")
            for called in CALLS[call]:
                model.call(called)
        assert shell.cat("tracing_on") == f"{model.on:d}\n"
        shown = [line for line in shell.cat("set_ftrace_filter").splitlines() if line[0] != "#"]
        assert sorted(shown) == sorted(model.lines())
        assert kinds_of(shown) == kinds_of(list(model.lines()))
    assert shell.cat("trace").count("<stack trace>") == model.stacks > 0
    for kind in list(model.kinds):
        shell.echo(f"!*:{kind}{'0' * kind.endswith(':')}", "set_ftrace_filter", append=True)
    assert shell.machine.memory.read(*text_range(shell)) == text_after_boot


def kinds_of(lines: list[str]) -> list[str]:
    """The kinds in the order they are listed."""
    found = (line.split(":", 1)[1].partition("=")[0] for line in lines)
    return list(dict.fromkeys(found))


def text_range(shell: Shell) -> tuple[int, int]:
    address, data = shell.session.image.segments[".text"]
    return address, len(data)
