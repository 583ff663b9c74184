"""The one exception that carries an errno to the caller of a file operation."""

from __future__ import annotations

import os


class TracefsError(Exception):
    """A failure as the kernel reports it: `errno` reaches the caller, the text the log.

    Everything else that escapes a file operation is a bug and is answered EIO.
    """

    def __init__(self, errno: int, message: str = "") -> None:
        super().__init__(message or os.strerror(errno))
        self.errno = errno


def reason(error: object) -> str:
    """Why something was not done, for a person."""
    if isinstance(error, OSError) and error.strerror:
        name = "" if error.filename is None else f"{error.filename}: "
        return f"{name}{error.strerror}"
    return str(error)
