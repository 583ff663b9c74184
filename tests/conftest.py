"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C ends what a test starts, even if the tests were started with it ignored.

    A shell without job control ignores it for what it runs in the background, every child inherits
    that, and a shell among them could not take it back.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
