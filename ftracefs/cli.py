"""The command line: `ftracefs mount`, `unmount`, `run`, `reset`, `check`.

Exit codes: 0 done, 1 failed (with a reason on stderr), 2 wrong usage. What takes time to import is
imported by the command that needs it. `run` passes on the exit code of its command and has 125 for
a failure of its own.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import ftracefs
from ftracefs.errors import reason

if TYPE_CHECKING:
    from ftracefs.mount.tracefs import Build, Options, Tracefs

DONE, FAILED, USAGE = 0, 1, 2
LOGS_KEPT = 32

# How to unmount, as the banner says it, and how to get help; mount.sh, which may stand before an
# environment of its own, puts itself there.
UNMOUNT_COMMAND, HELP_COMMAND = "FTRACEFS_UNMOUNT_COMMAND", "FTRACEFS_HELP_COMMAND"


def _complain(what: object) -> None:
    print(f"ftracefs: {reason(what)}", file=sys.stderr)


def _cpus(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 8:
        raise ValueError(text)
    return number


_cpus.__name__ = "number from 1 to 8"  # argparse names the type in its message


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an empty name")
    return text


def _image(text: str) -> str:
    with suppress(OSError):  # which is told of when it is read
        if Path(text).is_fifo():  # it would be waited for
            raise argparse.ArgumentTypeError(f"{text}: a pipe, not a file")
    return _name(text)


class _Parser(argparse.ArgumentParser):
    """Says where to read on when it is used wrongly."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        help = os.environ.get(HELP_COMMAND) or f"{self.prog} --help"
        self.exit(USAGE, f"{self.prog}: error: {message}\ntry: {help}\n")


def _what_to_mount() -> _Parser:
    """The options that `mount` and `run` share."""
    what = _Parser(add_help=False)
    what.add_argument(
        "--kernel",
        type=_image,
        metavar="IMAGE",
        default="builtin",
        help="the kernel behind the files: builtin; linux, the running host's or else Debian's; a"
        " vmlinuz; or an ELF file of one's own (docs/examples/elf_kernel)",
    )
    what.add_argument(
        "--module",
        type=_image,
        metavar="FILE",
        action="append",
        default=[],
        help="load a module of one's own into that kernel, an object file; may be given repeatedly",
    )
    what.add_argument(
        "--cpus",
        type=_cpus,
        metavar="N",
        help="number of vCPUs, 1 to 8 (default 2; 1 for a Linux)",
    )
    what.add_argument(
        "--clock",
        choices=("real", "virtual"),
        default="real",
        help="real follows the host's time; virtual steps evenly, the same in every run",
    )
    what.add_argument(
        "--isolated",
        action="store_true",
        help="nothing of the host shows in the trace: one fixed task, no workload",
    )
    what.add_argument("--pure", action="store_true", help="leave out the directory emulator/")
    what.add_argument("--log", type=_name, metavar="FILE", help="append the log to FILE")
    return what


def parser() -> argparse.ArgumentParser:
    """The whole command line; help texts included."""
    top = _Parser(
        prog="ftracefs",
        description="A tracefs you can mount anywhere: Linux ftrace over an emulated kernel.",
    )
    top.add_argument("--version", action="version", version=f"ftracefs {ftracefs.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    what = _what_to_mount()
    mount = commands.add_parser(
        "mount",
        parents=[what],
        help="mount a tracefs on an empty directory",
        description="Mount a tracefs on an empty directory and return when it answers.",
    )
    mount.add_argument("mountpoint", type=_name, metavar="MOUNTPOINT", help="an empty directory")
    mount.add_argument("--mkdir", action="store_true", help="make MOUNTPOINT if it is missing")
    mount.add_argument("--foreground", action="store_true", help="stay; Ctrl-C unmounts")
    mount.add_argument(
        "--until-eof",
        action="store_true",
        help="unmount at the end of standard input, which comes when a test that made a pipe of it"
        " ends in whatever way; implies --foreground",
    )
    mount.set_defaults(command=_mount, parser=mount)

    run = commands.add_parser(
        "run",
        parents=[what],
        usage="ftracefs run [OPTION...] -- COMMAND [ARGUMENT...]",
        help="run a command that finds a tracefs at /sys/kernel/tracing",
        description="Run a command in a namespace of its own in which a tracefs is at"
        " /sys/kernel/tracing and /sys/kernel/debug/tracing, as trace-cmd, perf and others want it."
        " The host's own tracefs cannot be reached from there. Without the right to mount, a user"
        " namespace is made, in which the command sees itself as root. The exit code is the"
        " command's; 125: it could not be started, 126: it cannot be executed, 127: not found.",
    )
    run.add_argument("argv", metavar="COMMAND", nargs=argparse.REMAINDER, help="and its arguments")
    run.set_defaults(command=_run, parser=run)

    unmount = commands.add_parser(
        "unmount",
        help="unmount it and end its daemon",
        description="Unmount a tracefs and end its daemon; blocked readers get end of file.",
    )
    unmount.add_argument("mountpoint", type=_name, metavar="MOUNTPOINT")
    unmount.set_defaults(command=_unmount, parser=unmount)

    reset = commands.add_parser(
        "reset",
        help="put every file back to what it was after the mount",
        description="Put every file of a mount back to what it was when it was mounted: tracer,"
        " filters, options, buffers, instances, modules. Refused while one of them is open.",
    )
    reset.add_argument("mountpoint", type=_name, metavar="MOUNTPOINT")
    reset.set_defaults(command=_reset, parser=reset)

    check = commands.add_parser(
        "check",
        help="say what this host lacks",
        description="Say what this host has and lacks. Exit code 1 when a mount would not work.",
    )
    check.set_defaults(command=_check, parser=check)
    return top


def main(argv: Sequence[str] | None = None, *, build: Build | None = None) -> int:
    """Run the command line. `build` makes what is mounted, if not an emulated kernel's tracefs."""
    arguments, unknown = parser().parse_known_args(argv)
    if unknown:
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    arguments.build = build
    try:
        code: int = arguments.command(arguments)
    except KeyboardInterrupt:
        _complain("interrupted")
        return FAILED
    return code


def _check(arguments: argparse.Namespace) -> int:
    from ftracefs.mount import requirements

    found = requirements.findings()
    for finding in found:
        print(finding)
    return FAILED if requirements.lacking(found) else DONE


def _unmount(arguments: argparse.Namespace) -> int:
    from ftracefs.mount import mountpoint

    try:
        mountpoint.stop(mountpoint.resolve(arguments.mountpoint))
    except mountpoint.MountError as error:
        _complain(error)
        return FAILED
    return DONE


def _reset(arguments: argparse.Namespace) -> int:
    from ftracefs.mount import mountpoint

    try:
        mountpoint.reset(mountpoint.resolve(arguments.mountpoint))
    except mountpoint.MountError as error:
        _complain(error)
        return FAILED
    return DONE


def _mount(arguments: argparse.Namespace) -> int:
    from ftracefs.mount import background, mountpoint, requirements

    path = mountpoint.resolve(arguments.mountpoint)
    try:
        if mountpoint.prepare(path, makes_it=arguments.mkdir):
            _complain(f"{path}: cleared a dead mount away")
    except mountpoint.MountError as error:
        _complain(error)
        return FAILED
    if lacking := requirements.lacking(requirements.fuse_findings()):
        for finding in lacking:
            _complain(f"{finding.name}: {finding.detail}")
        return FAILED
    options = _options(arguments)
    build = arguments.build or _build

    log = Path(arguments.log).resolve() if arguments.log else None
    stays = arguments.foreground or arguments.until_eof
    if arguments.until_eof:
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()

    def serve(on_ready: Callable[[], None]) -> int:
        end_start = _start_logging(log if stays else None)
        try:
            claim = mountpoint.claim(path)
        except mountpoint.MountError as error:
            _complain(error)
            return FAILED

        def mounted() -> None:
            os.close(claim)
            on_ready()
            end_start()

        return _serve(path, options, build, mounted)

    try:
        if stays:
            return serve(lambda: print(f"mounted on {path}; Ctrl-C unmounts", flush=True))
        log = log or _default_log(path)
        started = background.start(serve, log)
    except OSError as error:
        _complain(error)
        return FAILED
    if not started.is_ready:
        if started.exit_code != FAILED:  # with which it says why
            _complain(f"{path} is not mounted: the daemon ended with {started.exit_code}")
        return FAILED
    try:
        # Not looked up: whoever touches the mount becomes a process of the guest's.
        kernel = options.kernel
        has_shell = kernel is not None and _is_linux(kernel) and not options.pure
        print(_banner(path, started.pid, log, has_shell), flush=True)
    except BrokenPipeError:  # it is mounted, whoever reads
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at its end
    return DONE


def _stop_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _run(arguments: argparse.Namespace) -> int:
    from ftracefs.mount import covers, launch, requirements

    command = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not command:
        arguments.parser.error("which COMMAND?")
    if lacking := requirements.lacking(requirements.run_findings()):
        for finding in lacking:
            _complain(f"{finding.name}: {finding.detail}")
        return launch.CANNOT_START
    options = _options(arguments)
    build = arguments.build or _build
    log = Path(arguments.log).resolve() if arguments.log else _default_log(Path("/run"))

    def build_and_tell(options: Options) -> Tracefs:
        tracefs: Tracefs = build(options)
        covers.SYMBOLS.write_text(tracefs.kallsyms(), encoding="utf-8", errors="surrogateescape")
        return tracefs

    def serve_for(owner: int) -> Callable[[Callable[[], None]], int]:
        def serve(on_ready: Callable[[], None]) -> int:
            end_start = _start_logging(None)

            def ready() -> None:
                on_ready()
                end_start()

            return _serve(covers.TRACING, options, build_and_tell, ready, os.pidfd_open(owner))

        return serve

    code: int = launch.launch(command, serve_for, log, options.cpus)
    return code


def _options(arguments: argparse.Namespace) -> Options:
    from ftracefs.mount.tracefs import Options

    kernel = _kernel(arguments.kernel)
    return Options(
        kernel=kernel,
        modules=tuple(Path(module).resolve() for module in arguments.module),
        cpus=arguments.cpus or (1 if kernel is not None and _is_linux(kernel) else 2),
        clock=arguments.clock,
        isolated=arguments.isolated,
        pure=arguments.pure,
        at_terminal=sys.stderr.isatty(),
    )


def _kernel(name: str) -> Path | None:
    if name in {"builtin", "linux"}:
        return None if name == "builtin" else Path(name)
    return Path(name).resolve()


def _is_linux(kernel: Path) -> bool:
    """Whether it is one that boots."""
    from emulated_kernel.images import is_linux

    return is_linux(kernel)


def _build(options: Options) -> Tracefs:
    from ftracefs.session import build

    return build(options)


def _serve(
    path: Path,
    options: Options,
    build: Build,
    on_ready: Callable[[], None],
    owner: int | None = None,
) -> int:
    """Be the daemon; returns only when there was nothing to serve."""
    from emulated_kernel.errors import EmulatedKernelError
    from ftracefs.mount import mountpoint

    gc.disable()  # what a start makes is there to stay
    try:
        from ftracefs.mount.serve import serve

        tracefs = build(options)
    except (EmulatedKernelError, ImportError, OSError) as error:
        _complain(error)
        return FAILED
    finally:
        gc.freeze()
        gc.enable()
    # The daemon must keep no directory busy, least of all one below its own mount.
    os.chdir("/")
    code = DONE
    try:
        is_over = serve(tracefs, path, on_ready, owner)
        if owner is not None and not is_over:
            # Files that the command had open are still being released: nothing waits for them.
            _end(DONE)
    except mountpoint.MountError as error:
        _complain(error)
        code = FAILED
    finally:
        tracefs.close()
    return _end(code)


def _end(code: int) -> NoReturn:
    """End the process at once: it lets go of a mount that is held, and a thread of libfuse's that
    is still on its way out would come to an interpreter that is half taken down."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def _start_logging(log: Path | None) -> Callable[[], None]:
    """What is returned is to be called when the start is over: until then somebody waits for it,
    and what goes to stderr is read by a person."""
    handler = (
        logging.FileHandler(log, encoding="utf-8", errors="backslashreplace")
        if log
        else logging.StreamHandler()
    )
    full = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(full if log else logging.Formatter("ftracefs: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return lambda: handler.setFormatter(full)


def _default_log(path: Path) -> Path:
    """A log for a mount on `path`, emptied; /dev/null where there is no place for one. Of others
    those that somebody writes and the last ones stay."""
    from emulated_kernel.cache_files import keep_newest
    from ftracefs.mount import background

    try:
        home = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
        log = Path(home, "ftracefs", "-".join(path.parts[1:])[-200:] + ".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return Path(os.devnull)
    with suppress(OSError):
        keep_newest(log.parent, "*.log", LOGS_KEPT, is_in_use=background.is_held)
    return log


def _banner(path: Path, pid: int, log: Path, has_shell: bool) -> str:
    """What to try; `has_shell` is for a guest that has programs of its own to be traced."""
    unmount = os.environ.get(UNMOUNT_COMMAND) or "ftracefs unmount"
    place = shlex.quote(str(path))
    look = "cat trace_pipe                  # Ctrl-C leaves it"
    if has_shell:
        look = "echo 'cat /proc/version' > emulator/sh; cat trace"
    return f"""\
mounted on {path} (pid {pid}, log {log})
try it:
    cd {place}
    echo 'vfs_*' > set_ftrace_filter
    echo function > current_tracer
    {look}
stop it:
    {unmount} {place}"""
