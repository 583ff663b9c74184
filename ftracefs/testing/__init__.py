"""For tests of tools that use a tracefs: a mount that can be reset, and who drives it.

`MountedTracefs` is what the fixture `tracefs` of the pytest plugin gives; it needs no pytest.
"""

from ftracefs.testing.mounted import CallFailed, MountedTracefs, NotMounted
from ftracefs.testing.scripts import ScriptFailed
from ftracefs.testing.trace_lines import TraceLine

__all__ = ["CallFailed", "MountedTracefs", "NotMounted", "ScriptFailed", "TraceLine"]
