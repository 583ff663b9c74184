"""Records of the function graph tracer, as its guest code writes them, from the text they print."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from support.model_writer import print_record

TEXT_START = 0xFFFFFFFF81000000
FUNCTION_BYTES = 0x100

_LINE = re.compile(
    r"^ *(?P<cpu>\d+)\) (?:[ +!#*@$] (?P<us>[\d.]+) us *| +)\|  (?P<indent> *)"
    r"(?:(?P<open>\w+)\(\) \{|(?P<leaf>\w+)\(\);|"
    r"\}(?: /\* (?P<tail>\w+) \*/)?|/\* (?P<text>.*) \*/)$"
)
_SWITCH = re.compile(r"^ *(?P<cpu>\d+)\) +\S+-\d+ +=> +(?P<comm>\S+)-(?P<pid>\d+) *$")


def graph_entry(func: int, depth: int, *, pid: int, preempt: int = 1, flags: int = 0) -> bytes:
    """The payload of a funcgraph_entry record."""
    return struct.pack("<HBBiQi", 11, flags, preempt, pid, func, depth)


def graph_return(
    func: int,
    depth: int,
    duration: int,
    *,
    pid: int,
    calltime: int = 1000,
    overrun: int = 0,
    preempt: int = 0,
    flags: int = 0,
) -> bytes:
    """The payload of a funcgraph_exit record."""
    return struct.pack(
        "<HBBiQiIQQ", 10, flags, preempt, pid, func, depth, overrun, calltime, calltime + duration
    )


@dataclass(frozen=True, slots=True)
class Record:
    cpu: int
    payload: bytes


class Functions:
    """Addresses for names, given as they come."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def address(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return TEXT_START + self.names.index(name) * FUNCTION_BYTES


def records_of(text: str, functions: Functions, *, pid: int) -> Iterator[Record]:
    """The records that print as `text`, which has the default columns; `pid` is the first task.

    Of a brace that is closed without a name it is known which function opened it last.
    """
    pids: dict[int, int] = {}
    opened: dict[tuple[int, int], str] = {}
    for line in text.splitlines():
        if switch := _SWITCH.match(line):
            pids[int(switch["cpu"])] = int(switch["pid"])
            continue
        found = _LINE.match(line)
        if found is None:
            assert line == "" or line.startswith((" ---", "#")), line
            continue
        cpu, depth = int(found["cpu"]), len(found["indent"]) // 2
        task = pids.setdefault(cpu, pid)
        duration = round(float(found["us"]) * 1000) if found["us"] else 0
        if found["text"] is not None:
            yield Record(cpu, print_record(found["text"].encode() + b"\n", pid=task))
        elif name := found["open"] or found["leaf"]:
            yield Record(cpu, graph_entry(functions.address(name), depth, pid=task))
            opened[cpu, depth] = name
            if found["leaf"]:
                func = functions.address(name)
                yield Record(cpu, graph_return(func, depth, duration, pid=task))
        else:
            name = found["tail"] or opened[cpu, depth]
            yield Record(cpu, graph_return(functions.address(name), depth, duration, pid=task))
