"""A request that comes while the machine is being switched off."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TypeVar

import pytest
from support.mounts import require_fuse

from emulated_kernel.errors import MachineOffError
from ftracefs.files.base import Caller, Directory, Operation

T = TypeVar("T")


class SwitchedOff:
    """Callers whose machine is gone."""

    def run(self, caller: Caller, operation: Operation, action: Callable[[], T]) -> T:
        raise MachineOffError("the machine is switched off")

    def interrupt(self, caller: Caller, operation: Operation) -> None:
        """Nobody sleeps."""


def test_is_told_that_the_mount_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    require_fuse()
    from ftracefs.mount.binding import FuseError
    from ftracefs.mount.operations import Operations

    operations = Operations(Directory(), SwitchedOff(), reset=lambda: None)
    with caplog.at_level(logging.ERROR), pytest.raises(FuseError) as error:
        operations("opendir", "/")
    assert error.value.errno == errno.ENOTCONN
    assert not caplog.records
