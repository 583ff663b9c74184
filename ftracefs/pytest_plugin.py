"""The pytest plugin: a fixture `tracefs`, a mounted tracefs that every test finds as new.

One daemon serves a whole test session, and its files are put back between tests. A test with the
mark `tracefs` gets a mount of its own. Importing this loads nothing but pytest; what takes time is
loaded by the first test that asks for the fixture, and the emulated kernel by the daemon alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from ftracefs.mount.tracefs import Options
    from ftracefs.testing import MountedTracefs

REQUIRE = "FTRACEFS_REQUIRE_FUSE"
_MARK = (
    "tracefs(cpus=…, clock=…, isolated=…, pure=…, kernel=…): the fixture tracefs is a mount of this"
    " test's own, with these options instead of the session's"
)
_WORDS = ("cpus", "clock", "isolated", "pure", "kernel")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ftracefs", "a mounted tracefs for tests (fixture tracefs)")
    group.addoption("--tracefs-cpus", metavar="N", help="number of vCPUs, 1 to 8 (default 2)")
    group.addoption(
        "--tracefs-clock", choices=("real", "virtual"), help="the emulated kernel's clock"
    )
    group.addoption(
        "--tracefs-isolated",
        action="store_const",
        const="true",
        help="nothing of the host shows in the trace",
    )
    group.addoption("--tracefs-kernel", metavar="IMAGE", help="the kernel behind the files")
    group.addoption(
        "--tracefs-require",
        action="store_const",
        const="true",
        help=f"fail where no tracefs can be mounted, instead of skipping; so does {REQUIRE}=1",
    )
    parser.addini("tracefs_cpus", "number of vCPUs, 1 to 8", default="2")
    parser.addini("tracefs_clock", "the emulated kernel's clock: real or virtual", default="real")
    parser.addini("tracefs_isolated", "nothing of the host shows in the trace", default="false")
    parser.addini("tracefs_kernel", "the kernel behind the files", default="builtin")
    parser.addini("tracefs_require", "fail where no tracefs can be mounted", default="false")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARK)


@pytest.fixture(scope="session")
def _tracefs_mounts(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Mounts]:
    mounts = _Mounts(pytestconfig, tmp_path_factory)
    try:
        yield mounts
    finally:
        mounts.close()


@pytest.fixture
def tracefs(request: pytest.FixtureRequest, _tracefs_mounts: _Mounts) -> Iterator[MountedTracefs]:
    """A mounted tracefs, as new for each test; ftracefs.testing.MountedTracefs says what it does.

    The mark `tracefs` gives the test a mount of its own.
    """
    mark = request.node.get_closest_marker("tracefs")
    if mark is not None:
        with _tracefs_mounts.own(mark) as mounted:
            yield mounted
        return
    mounted = _tracefs_mounts.shared()
    try:
        yield mounted
    finally:
        _tracefs_mounts.give_back()


class _Mounts:
    """The mount that tests share, and what others are made from."""

    def __init__(self, config: pytest.Config, directories: pytest.TempPathFactory) -> None:
        self._config = config
        self._directories = directories
        self._shared: MountedTracefs | None = None

    def shared(self) -> MountedTracefs:
        """The mount for all tests; a new one if a test has ended the last one."""
        if self._shared is not None and not self._shared.is_alive:
            self.close()
        if self._shared is None:
            self._require_fuse()
            mounted = self._new(self._session_options())
            mounted.start()
            self._shared = mounted
        return self._shared

    def give_back(self) -> None:
        """After a test: put the files back, or let the next test have a new mount."""
        from ftracefs.mount.mountpoint import MountError

        if self._shared is None:
            return
        try:
            self._shared.reset()
        except MountError:
            self.close()

    def own(self, mark: pytest.Mark) -> MountedTracefs:
        """A mount with the options of a mark."""
        self._require_fuse()
        wrong = sorted(set(mark.kwargs) - set(_WORDS))
        if mark.args or wrong:
            given = [*map(repr, mark.args), *wrong]
            _refuse(f"the mark tracefs takes {_MARK}, not {', '.join(given)}")
        options = self._session_options()
        words: dict[str, Any] = dict(mark.kwargs)
        if "kernel" in words:
            words["kernel"] = _kernel(str(words["kernel"]))
        return self._new(replace(options, **words))

    def close(self) -> None:
        """No mount is left."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()

    def _new(self, options: Options) -> MountedTracefs:
        from ftracefs.testing import MountedTracefs

        # The log stands among the files of the last sessions. The mount does not: pytest renames
        # and removes those directories, even while another session runs.
        log = self._directories.mktemp("tracefs") / "ftracefs.log"
        return MountedTracefs(options=options, log=log)

    def _session_options(self) -> Options:
        from ftracefs.mount.tracefs import Options

        cpus, clock = self._word("cpus"), self._word("clock")
        if not cpus.isdecimal() or not 1 <= int(cpus) <= 8:
            _refuse(f"tracefs_cpus: {cpus!r} is no number from 1 to 8")
        if clock not in ("real", "virtual"):
            _refuse(f"tracefs_clock: {clock!r} is neither real nor virtual")
        return Options(
            kernel=_kernel(self._word("kernel")),
            cpus=int(cpus),
            clock="real" if clock == "real" else "virtual",
            isolated=self._is_set("isolated"),
        )

    def _word(self, name: str) -> str:
        """The command line's, or the configuration file's."""
        return str(
            self._config.getoption(f"tracefs_{name}") or self._config.getini(f"tracefs_{name}")
        )

    def _is_set(self, name: str) -> bool:
        word = self._word(name).lower()
        if word not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
            _refuse(f"tracefs_{name}: {word!r} is neither true nor false")
        return word in ("true", "1", "yes", "on")

    def _require_fuse(self) -> None:
        from ftracefs.mount import requirements

        lacking = requirements.lacking(requirements.fuse_findings())
        if not lacking:
            return
        why = "; ".join(f"{finding.name}: {finding.detail}" for finding in lacking)
        text = f"no tracefs can be mounted here: {why}"
        if os.environ.get(REQUIRE) == "1" or self._is_set("require"):
            pytest.fail(text, pytrace=False)
        pytest.skip(f"{text} ({REQUIRE}=1 makes this a failure)")


def _refuse(text: str) -> NoReturn:
    pytest.fail(text, pytrace=False)


def _kernel(word: str) -> Path | None:
    return None if word == "builtin" else Path(word).resolve()
