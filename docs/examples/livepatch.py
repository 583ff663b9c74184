"""A live patch: calls of one function go to another, and who else may move them.

    python docs/examples/livepatch.py

lcm is replaced by gcd, and by int_sqrt on top of that. Meanwhile nobody else gets to move the
instruction pointer of lcm, and ftrace cannot be switched off. It prints

    lcm(16, 24) = 48
    lcm(16, 24) = 8     lcm (1)   I
    lcm(16, 24) = 4     lcm (1)   I
    a second op that moves the instruction pointer: EBUSY
    ftrace switched off: EBUSY
    lcm(16, 24) = 8     lcm (1)   I
    lcm(16, 24) = 48
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from ftracefs.errors import TracefsError
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.ops import FTRACE_OPS_FL_IPMODIFY
from ftracefs.ftrace.registration import ftrace_enable_sysctl
from ftracefs.mount.tracefs import Options
from ftracefs.session import Session


def main() -> None:
    session = Session(Options(isolated=True, clock="virtual"))
    try:
        show(session)
    finally:
        session.close()


def show(session: Session) -> None:
    machine, ftrace = session.machine, session.ftrace
    lcm, gcd, int_sqrt = (session.image.label(name) for name in ("lcm", "gcd", "int_sqrt"))
    patches = ftrace.livepatch

    def call() -> None:
        result = f"lcm(16, 24) = {machine.call('lcm', 16, 24)}"
        enabled = machine.run(ftrace.enabled_functions).decode().partition("\t")[0].rstrip()
        print(f"{result:<20}{enabled}".rstrip())

    def refused(what: str, work: Callable[[], object]) -> None:
        try:
            machine.run(work)
        except TracefsError as error:
            print(f"{what}: {errno.errorcode[error.errno]}")

    call()
    machine.run(lambda: patches.klp_patch_func(lcm, gcd))
    call()
    machine.run(lambda: patches.klp_patch_func(lcm, int_sqrt))
    call()

    second = ftrace.new_ops(ftrace.labels["klp_ftrace_handler"], flags=FTRACE_OPS_FL_IPMODIFY)
    machine.run(lambda: ftrace_set_filter(ftrace, second, b"lcm"))
    refused(
        "a second op that moves the instruction pointer",
        lambda: ftrace.register_ftrace_function(second),
    )
    refused("ftrace switched off", lambda: ftrace_enable_sysctl(ftrace, False))

    machine.run(lambda: patches.klp_unpatch_func(lcm, int_sqrt))
    call()
    machine.run(lambda: patches.klp_unpatch_func(lcm))
    call()


if __name__ == "__main__":
    main()
