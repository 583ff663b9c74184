"""Programs of the host for the guest, with the loader and the libraries that they need.

The loader itself is asked for them (`ld.so --list`, ld.so(8)), so they are those that the program
would have on the host.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from emulated_kernel.linux.cpio import DIRECTORY, FILE, CpioFile

log = logging.getLogger(__name__)

PATH = "/usr/bin:/bin"
_LIBRARY = re.compile(r"=> (/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_TIMEOUT_S = 10.0


def host_programs(names: Iterable[str]) -> list[CpioFile]:
    """What of `names` the host has, as /bin/NAME; what cannot be had is left out."""
    from elftools.common.exceptions import ELFError  # which takes longer than to restore a guest

    files: dict[str, CpioFile] = {}
    for name in names:
        found = shutil.which(name, path=PATH)
        if found is None:
            continue
        try:
            needed = list(_needed(Path(found)))
            program = CpioFile(f"bin/{name}", FILE | 0o755, Path(found).read_bytes())
            libraries = [CpioFile(str(p)[1:], FILE | 0o755, p.read_bytes()) for p in needed]
        except (OSError, ELFError, subprocess.SubprocessError) as error:
            log.info("the guest gets no %s of the host's: %s", name, error)
            continue
        files.update({file.name: file for file in (program, *libraries)})
    folders = {str(up) for name in files for up in Path(name).parents} - {".", "bin"}
    return [*(CpioFile(folder, DIRECTORY | 0o755) for folder in sorted(folders)), *files.values()]


def _needed(program: Path) -> Iterator[Path]:
    """The loader, by the name that the program has for it, and the libraries."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    with program.open("rb") as file:
        elf = ELFFile(file)
        if elf["e_machine"] != "EM_X86_64" or elf.elfclass != 64:
            raise ELFError("not for x86-64")
        loaders = [s for s in elf.iter_segments() if isinstance(s, InterpSegment)]
        if not loaders:
            return
        loader = Path(loaders[0].get_interp_name())
    yield loader
    listed = subprocess.run(
        [loader, "--list", program], stdout=subprocess.PIPE, check=True, timeout=_TIMEOUT_S
    )
    yield from map(Path, _LIBRARY.findall(listed.stdout.decode()))
