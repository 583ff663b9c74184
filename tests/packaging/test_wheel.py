"""Wheel and sdist are built, and the installed wheel works away from the source tree."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.mounts import ROOT, mounted

import ftracefs

PACKAGES = ("ftracefs", "emulated_kernel")

pytestmark = pytest.mark.timeout(600)


def run(*command: str | Path, cwd: Path) -> str:
    # Nothing of the source tree may help the installed package along.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel built from that sdist."""
    directory = tmp_path_factory.mktemp("dist")
    isolation = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    run(sys.executable, "-m", "build", *isolation, "--outdir", directory, ROOT, cwd=directory)
    return directory


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of a new environment that holds the wheel and what it asks for."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", environment, cwd=environment)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-input", wheel, cwd=environment)
    return environment / "bin"


def package_files() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert package_files() - names == set()
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_holds_the_manual_page_and_the_completions(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    shared = {
        name.partition(".data/data/")[2]: archive.read(name)
        for name in archive.namelist()
        if ".data/data/" in name
    }
    assert shared == {
        name: (ROOT / name).read_bytes()
        for name in (
            "share/man/man1/ftracefs.1",
            "share/bash-completion/completions/ftracefs",
            "share/zsh/site-functions/_ftracefs",
            "share/fish/vendor_completions.d/ftracefs.fish",
        )
    }


def test_the_sdist_holds_the_packages_and_their_tests(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"LICENSE", "README.md", "mount.sh", "pyproject.toml", "tests/run.sh"}
    needed |= {"share/man/man1/ftracefs.1", "tools/command_line/man.py"}
    assert (package_files() | needed) - names == set()


def test_the_installed_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    expected = f"ftracefs {ftracefs.__version__}\n"
    assert run(installed / "ftracefs", "--version", cwd=tmp_path) == expected
    assert run(installed / "python", "-m", "ftracefs", "--version", cwd=tmp_path) == expected


def test_the_installed_wheel_mounts(installed: Path, tmp_path: Path) -> None:
    command = (str(installed / "ftracefs"),)
    with mounted(tmp_path / "tracing", command=command, cwd=tmp_path) as mount:
        assert (mount / "current_tracer").read_text() == "nop\n"
        (mount / "current_tracer").write_text("function")
        assert (mount / "current_tracer").read_text() == "function\n"
