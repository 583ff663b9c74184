"""The guest's first file system.

Our own init, programs of the host (host_programs.py), and busybox for all other tools, or for these
too. A busybox that is the shell runs its tools in the shell's own process, and its cat makes no
read: what is traced would not be what was asked for.
"""

from __future__ import annotations

import functools
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

from emulated_kernel.asm_offsets import HYPERCALL_VECTOR
from emulated_kernel.assembler import load
from emulated_kernel.assembly import Assembly
from emulated_kernel.linux.cpio import CHARACTER, DIRECTORY, FILE, LINK, CpioFile, cpio

_HERE = Path(__file__).parent
_INIT_BASE = 0x400000
_PAGE = 4096
_ELF_HEADER_BYTES, _PROGRAM_HEADER_BYTES = 64, 56
_DIRECTORIES = ("bin", "dev", "etc", "mnt", "proc", "root", "sys", "tmp")
_BUSYBOX_NAMES = (
    *("[", "ash", "awk", "basename", "cat", "chmod", "clear", "cmp", "cp", "cut", "date", "dd"),
    *("df", "diff", "dirname", "dmesg", "du", "echo", "env", "expr", "false", "find", "free"),
    *("grep", "gzip", "head", "hexdump", "id", "kill", "killall", "ln", "ls", "md5sum", "mkdir"),
    *("mkfifo", "mknod", "mktemp", "mount", "mv", "nice", "nohup", "od", "pgrep", "pidof", "pkill"),
    *("poweroff", "printf", "ps", "pwd", "readlink", "reboot", "renice", "rm", "rmdir", "sed"),
    *("seq", "sh", "sha256sum", "sleep", "sort", "stat", "stty", "sync", "tail", "taskset", "tee"),
    *("test", "time", "top", "touch", "tr", "true", "tty", "umount", "uname", "uniq", "uptime"),
    *("usleep", "vi", "wc", "which", "who", "xargs", "yes", "zcat"),
)


def static_busybox() -> Path | None:
    """The host's busybox, if it is there and needs no libraries."""
    for name in ("busybox", "busybox.static", "busybox-static"):
        found = shutil.which(name, path="/bin:/usr/bin:/usr/local/bin")
        if found is not None and _is_static(Path(found)):
            return Path(found)
    return None


def _is_static(path: Path) -> bool:
    try:
        data = path.read_bytes()
        if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != 62:
            return False
        (at,) = struct.unpack_from("<Q", data, 32)
        (count,) = struct.unpack_from("<H", data, 56)
        kinds = [
            struct.unpack_from("<I", data, at + _PROGRAM_HEADER_BYTES * i)[0] for i in range(count)
        ]
    except (OSError, struct.error):
        return False
    return 3 not in kinds  # PT_INTERP


@functools.cache
def init_code() -> Assembly:
    """init.S and agent.S."""
    start = _INIT_BASE + _ELF_HEADER_BYTES + _PROGRAM_HEADER_BYTES
    sources = [_HERE / name for name in ("system_call.inc", "init.S", "agent.S")]
    return load(sources, {".text": start}, {"HYPERCALL": HYPERCALL_VECTOR})


def init_program() -> bytes:
    """Init as an executable: one segment, header and all, that may be written."""
    built = init_code()
    (address, code) = built.segments[".text"]
    start = address - _INIT_BASE
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        *(2, 62, 1, built.labels["_start"], _ELF_HEADER_BYTES, 0, 0),
        *(_ELF_HEADER_BYTES, _PROGRAM_HEADER_BYTES, 1, 0, 0, 0),
    )
    size = start + len(code)
    segment = struct.pack("<IIQQQQQQ", 1, 7, 0, _INIT_BASE, _INIT_BASE, size, size, _PAGE)
    return header + segment + code


def initramfs(busybox: bytes | None, programs: Sequence[CpioFile] = ()) -> bytes:
    """The archive; `busybox` is the program's contents, `programs` come before its own."""
    files = [CpioFile(name, DIRECTORY | 0o755) for name in _DIRECTORIES]
    files += [
        CpioFile("dev/console", CHARACTER | 0o600, device=(5, 1)),
        CpioFile("dev/null", CHARACTER | 0o666, device=(1, 3)),
        CpioFile("init", FILE | 0o755, init_program()),
        CpioFile("etc/commands", FILE | 0o755, (_HERE / "commands.sh").read_bytes()),
        CpioFile("etc/passwd", FILE | 0o644, b"root::0:0:root:/root:/bin/sh\n"),
    ]
    if busybox is not None:
        files.append(CpioFile("bin/busybox", FILE | 0o755, busybox))
        there = {file.name for file in programs}
        names = [name for name in _BUSYBOX_NAMES if f"bin/{name}" not in there]
        files += [CpioFile(f"bin/{name}", LINK | 0o777, b"busybox") for name in names]
    return cpio([*files, *programs])
