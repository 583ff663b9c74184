"""All benchmarks: a table, and a JSON file.

    tests/bench/run.sh [--quick] [--json FILE] [--peer FILE] [GROUP...]

GROUP is hot_path, patching, output, mount or linux; all by default. With --quick a group has the
sizes of its QUICK: what it prints are no figures to go by, but all of its code has run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from bench.figures import Figure, table, write_json
from bench.peer import peer_figures

GROUPS = ("hot_path", "patching", "output", "mount", "linux")


def warning(load: float, cpus: int) -> str:
    """What to think of figures taken under this load, by the minute before; "" for nothing."""
    if load < cpus:
        return ""
    return (
        f"load {load:.1f} on {cpus} CPUs: others are at work here. Ratios hold, and the best of"
        " several runs nearly; medians of times and rates do not."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--peer", type=Path, help="figures of the peer, as bench/peer.py says")
    parser.add_argument(
        "--quick", action="store_true", help="sizes that only show that it works, in seconds"
    )
    options = parser.parse_args()
    for group in options.groups:
        if group not in GROUPS:
            parser.error(f"no group {group!r}")
    try:
        peer = peer_figures(options.peer)
    except (OSError, ValueError) as error:
        parser.error(f"--peer: {error}")
    all_figures: list[Figure] = []
    loads: dict[str, float] = {}
    for group in options.groups or GROUPS:
        loads[group] = os.getloadavg()[0]
        if said := warning(loads[group], len(os.sched_getaffinity(0))):
            print(f"{group}: {said}", file=sys.stderr, flush=True)
        module = importlib.import_module(f"bench.{group}")
        if options.quick:
            assert module.QUICK.keys() <= vars(module).keys()
            vars(module).update(module.QUICK)
        found = list(module.figures(peer))
        said = ", no figures to go by" if options.quick else ""
        print(f"== {group}, load {loads[group]:.1f}{said}\n{table(found)}\n", flush=True)
        all_figures += found
    if options.json:
        write_json(options.json, all_figures, loads)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
