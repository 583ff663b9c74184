"""The tree of tracefs files as a FUSE file system.

`binding` is the only importer of `fuse`, `operations` adapts the tree to it, `serve` starts and
stops a session, `background` puts one behind the shell. What can be asked of a host without
loading libfuse stands in `mountpoint` and `requirements`.
"""
