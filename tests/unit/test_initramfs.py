"""The guest's first file system, read as the kernel reads it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from emulated_kernel.linux.cpio import CpioFile, cpio
from emulated_kernel.linux.host_programs import host_programs
from emulated_kernel.linux.initramfs import init_program, initramfs
from emulated_kernel.linux.shell import COMMAND_MAX, encode


def unpack(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Name -> (mode, contents)."""
    files: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        size, name_size = fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        data_at = -(-(at + 110 + name_size) // 4) * 4
        if name == "TRAILER!!!":
            return files
        files[name] = (fields[1], archive[data_at : data_at + size])
        at = -(-(data_at + size) // 4) * 4


@pytest.mark.parametrize("size", range(6))
def test_contents_of_any_length_come_out_again(size: int) -> None:
    data = bytes(range(size))
    archive = cpio([CpioFile("a" * size or "x", 0o100644, data), CpioFile("last", 0o100600)])
    assert unpack(archive)["a" * size or "x"] == (0o100644, data)
    assert unpack(archive)["last"] == (0o100600, b"")


def test_init_is_a_static_executable() -> None:
    elf = ELFFile(io.BytesIO(init_program()))
    assert (elf["e_type"], elf["e_machine"]) == ("ET_EXEC", "EM_X86_64")
    (segment,) = elf.iter_segments()
    assert segment["p_vaddr"] <= elf["e_entry"] < segment["p_vaddr"] + segment["p_filesz"]
    assert segment["p_filesz"] == len(init_program())


def test_tools_are_links_to_busybox() -> None:
    files = unpack(initramfs(b"the program"))
    assert files["bin/busybox"] == (0o100755, b"the program")
    assert files["bin/sh"] == (0o120777, b"busybox")
    assert files["init"][0] == 0o100755


def test_without_busybox_there_is_no_shell() -> None:
    assert "bin/sh" not in unpack(initramfs(None))


def test_a_command_is_one_line_whatever_is_in_it() -> None:
    line = encode(b"echo 'a\\b\n\\n'\nexit")
    assert line == b"echo 'a\\\\b\\n\\\\n'\\nexit\n"
    assert encode(b"a\x03b") == b"a\\03b\n"


def test_a_command_that_is_too_long_for_the_line_is_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        encode(b"x" * COMMAND_MAX)


def test_the_loop_of_commands_is_a_shell_script(tmp_path: Path) -> None:
    assert unpack(initramfs(None))["etc/commands"][1].startswith(b"#!/bin/sh\n")


def test_a_program_of_the_host_comes_with_its_loader_and_libraries() -> None:
    files = {file.name: file for file in host_programs(["cat", "no_such_program"])}
    assert files["bin/cat"].data == Path("/bin/cat").read_bytes()
    loader = ELFFile(io.BytesIO(files["bin/cat"].data)).get_section_by_name(".interp")
    if loader is None:
        pytest.skip("this host's cat is static")
    path = loader.data().rstrip(b"\0").decode()
    assert files[path[1:]].data == Path(path).read_bytes()
    libraries = [file for name, file in files.items() if ".so" in name]
    assert len(libraries) >= 2
    assert all(ELFFile(io.BytesIO(file.data))["e_type"] == "ET_DYN" for file in libraries)
    folders = [name for name, file in files.items() if file.mode & 0o170000 == 0o040000]
    assert str(Path(path).parent)[1:] in folders
    assert "no_such_program" not in " ".join(files)
