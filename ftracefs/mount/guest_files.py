"""The tree's entries in the emulated kernel's own tracefs, where callers walk their paths.

Models create_trace_instances and the tracefs_create_* calls of init_tracer_tracefs. What a file
does is the host's: all have the same file operations in the guest, which stop for it.
"""

from __future__ import annotations

import os

from emulated_kernel.machine import Machine
from ftracefs.files.base import Directory
from ftracefs.files.instances import Instances

_NAME_MAX = 255
_ANY, _ANY_MODE = "any", 0o440


class GuestFiles:
    """The dentries made so far; all methods are for the machine thread."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._name = machine.alloc(_NAME_MAX + 1)
        self._instances: Instances | None = None
        self._instance_dir = 0  # the dentry of instances/
        self._dentries: dict[str, int] = {}  # of instances
        self._one_for_all: set[str] = set()  # directories with one entry in the place of all

    def path(self, path: str) -> str:
        """What a path is called in the guest."""
        directory, slash, _ = path.rpartition("/")
        return f"{directory}/{_ANY}" if slash and directory in self._one_for_all else path

    def create(self, directory: Directory, parent: int = 0, cpu: int = 0, path: str = "") -> None:
        """Make every entry of `directory` below the dentry `parent`; 0 is tracefs's root.

        `path` is what it is called, with a slash at the end. Where there are thousands, all alike,
        one stands for all of them.
        """
        fops = self._machine.image.labels["tracing_fops"]
        if directory.makes_entries:
            self._one_for_all.add(path.rstrip("/"))
            self._call("tracefs_create_file", _ANY, _ANY_MODE, parent, 0, fops, cpu=cpu)
            return
        for entry in directory:
            node = directory.lookup(entry)
            if isinstance(node, Instances):
                self._instances = node
                self._instance_dir = self._call("tracefs_create_instance_dir", entry, parent)
            elif isinstance(node, Directory):
                dentry = self._call("tracefs_create_dir", entry, parent, cpu=cpu)
                self.create(node, dentry, cpu, f"{path}{entry}/")
            else:
                self._call("tracefs_create_file", entry, node.mode, parent, 0, fops, cpu=cpu)

    def create_instance(self, name: str, cpu: int) -> None:
        """The directory of an instance that has just been made, as work of who runs on `cpu`."""
        assert self._instances is not None
        directory = self._instances.lookup(name)
        assert isinstance(directory, Directory)
        dentry = self._call("tracefs_create_dir", name, self._instance_dir, cpu=cpu)
        self._dentries[name] = dentry
        self.create(directory, dentry, cpu)

    def remove_instance(self, name: str, cpu: int) -> None:
        """Take the directory away again; nothing happens to one that was never made."""
        dentry = self._dentries.pop(name, 0)
        if dentry:
            self._machine.call("tracefs_remove", dentry, cpu=cpu)

    def _call(self, function: str, name: str, *arguments: int, cpu: int = 0) -> int:
        self._machine.memory.write(self._name, os.fsencode(name) + b"\0")
        return self._machine.call(function, self._name, *arguments, cpu=cpu)
