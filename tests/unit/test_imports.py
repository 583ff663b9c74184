"""Imports run one way, and each binding has one importer.

Read with `ast` and not by importing, so that a lazy import inside a function counts too, and so
that the rule holds on a machine where a binding is missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ftracefs", "emulated_kernel")

# Lowest first. A module may import its own unit and those on lower levels; two units of one level
# know nothing of each other.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("emulated_kernel",),
    ("ftracefs", "ftracefs.errors"),
    ("ftracefs.guest",),
    ("ftracefs.ftrace", "ftracefs.ring_buffer"),
    ("ftracefs.trace",),
    ("ftracefs.files",),
    ("ftracefs.mount",),
    ("ftracefs.bare_session",),
    ("ftracefs.linux_session",),
    ("ftracefs.session",),
    ("ftracefs.testing",),
    ("ftracefs.cli", "ftracefs.pytest_plugin"),
    ("ftracefs.__main__",),
)
RANK = {unit: rank for rank, units in enumerate(LEVELS) for unit in units}

# Who may import a binding: a module, or a package with everything below it.
SOLE_IMPORTERS = {
    "unicorn": "emulated_kernel.machine",
    "keystone": "emulated_kernel.assembler",
    "fuse": "ftracefs.mount",
}


@dataclass(frozen=True, slots=True)
class Import:
    """`importer` names `imported` in line `line`; `imported` is a module, or a name in one."""

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(importer: str, is_package: bool, source: str) -> Iterator[Import]:
    """Every import in `source`; `from a import b` is told as a.b, relative ones made absolute."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = importer.split(".")
                package = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*package, *([base] if base else [])])
            for alias in node.names:
                yield Import(importer, f"{base}.{alias.name}", node.lineno)


def unit_of(module: str) -> str:
    """The unit of a module: `emulated_kernel`, or ftracefs and the part right below it."""
    parts = module.split(".")
    return parts[0] if parts[0] == "emulated_kernel" else ".".join(parts[:2])


def unit_of_imported(name: str) -> str:
    """The same for what an import names, which may be no module but a name in `ftracefs`."""
    unit = unit_of(name)
    path = ROOT.joinpath(*unit.split("."))
    is_module = path.is_dir() or path.with_suffix(".py").is_file()
    return unit if unit in RANK or is_module else "ftracefs"


def below(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def project_imports() -> list[Import]:
    return [
        found
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for found in imports_of(
            module_name(path), path.name == "__init__.py", path.read_text(encoding="utf-8")
        )
    ]


def violations(found: list[Import]) -> list[str]:
    wrong = []
    for item in found:
        top = item.imported.split(".")[0]
        owner = SOLE_IMPORTERS.get(top)
        if owner is not None and not below(item.importer, owner):
            wrong.append(f"{item}: only {owner} may")
        if top not in PACKAGES:
            continue
        importer, imported = unit_of(item.importer), unit_of_imported(item.imported)
        if importer == imported:
            continue
        unknown = [unit for unit in (importer, imported) if unit not in RANK]
        wrong += [f"{item}: {unit} has no place in LEVELS" for unit in unknown]
        if not unknown and RANK[imported] >= RANK[importer]:
            wrong.append(f"{item}: {imported} does not stand below {importer}")
    return wrong


def test_imports_run_one_way_and_each_binding_has_one_importer() -> None:
    assert violations(project_imports()) == []


@pytest.mark.parametrize(
    ("importer", "is_package", "source"),
    [
        ("emulated_kernel.tasks", False, "from ftracefs.errors import TracefsError"),
        ("ftracefs.trace.clock", False, "def f():\n    from ftracefs.files.base import Text"),
        ("ftracefs.ring_buffer", True, "from ..ftrace import records"),
        ("ftracefs.files.base", False, "from .. import session"),
        ("ftracefs.session", False, "import fuse"),
        ("emulated_kernel.image", False, "from unicorn import Uc"),
        ("emulated_kernel.machine.cpu", False, "import keystone"),
        ("ftracefs.brand_new", False, "import emulated_kernel"),
    ],
)
def test_a_wrong_import_is_seen(importer: str, is_package: bool, source: str) -> None:
    assert violations(list(imports_of(importer, is_package, source)))


@pytest.mark.parametrize(
    ("importer", "is_package", "source"),
    [
        ("ftracefs.mount", True, "import fuse\nfrom .. import __version__"),
        ("emulated_kernel.machine.cpu", False, "import unicorn.x86_const"),
        ("emulated_kernel.assembler", False, "from keystone import Ks"),
        ("ftracefs.__main__", False, "from ftracefs.cli import main"),
        ("ftracefs.files.trace", False, "from ..trace.clock import Clock\nimport fuselage"),
    ],
)
def test_a_right_import_is_let_through(importer: str, is_package: bool, source: str) -> None:
    assert violations(list(imports_of(importer, is_package, source))) == []
