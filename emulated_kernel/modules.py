"""Modules come and go while the kernel runs (kernel/module/main.c).

    load_module → notifiers: MODULE_STATE_COMING → do_init_module → init_module
    delete_module → cleanup_module → notifiers: MODULE_STATE_GOING → free_module

Whoever must know of a module's code before it runs, or may be in need of it, hangs into `coming`,
`going` and `users`. Linux counts references; here a module's cleanup_module may answer that it is
in use, and where there is none the stacks of all tasks are asked. Text that is gone holds INT3.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence

from emulated_kernel.errors import EmulatedKernelError, ModuleError
from emulated_kernel.image import Module
from emulated_kernel.machine import EmulatedMachine

log = logging.getLogger(__name__)

_INT3 = b"\xcc"


class Modules:
    """The modules of `machine`, of which `available` can be loaded. For the machine thread."""

    def __init__(self, machine: EmulatedMachine, available: Sequence[Module]) -> None:
        self._machine = machine
        self.available = {module.name: module for module in available}
        self.loaded: dict[str, Module] = {}
        self.coming: list[Callable[[Module], None]] = []
        self.going: list[Callable[[Module], None]] = []
        self.users: list[Callable[[Module], list[str]]] = []  # each names who leads into the module
        self.is_running: Callable[[Module], bool] = lambda _module: False  # a task is in its text
        self.generation = 0  # counts the changes

    def load_module(self, name: str) -> None:
        """Put a module into memory and run its init_module.

        ENOENT for a name that is none, EEXIST when it is loaded; what init_module answers if that
        is an error.
        """
        module = self.available.get(name)
        if module is None:
            raise ModuleError(errno.ENOENT, f"no module {name}")
        if name in self.loaded:
            raise ModuleError(errno.EEXIST, f"{name} is loaded")
        self._machine.load_segments(dict(module.segments))
        for notify in self.coming:
            notify(module)
        self.loaded[name] = module
        self.generation += 1
        try:
            failed = self._call(module, "init_module")
        except EmulatedKernelError as error:
            self._free_module(module)
            raise ModuleError(errno.EFAULT, str(error)) from error
        if failed:
            self._free_module(module)
            raise ModuleError(-failed, f"init_module of {name} failed")

    def delete_module(self, name: str) -> None:
        """Run a module's cleanup_module and take it out of memory.

        ENOENT when it is not loaded, EBUSY when somebody needs it; what cleanup_module answers if
        that is an error.
        """
        module = self.loaded.get(name)
        if module is None:
            raise ModuleError(errno.ENOENT, f"{name} is not loaded")
        if users := self.used_by(module):
            raise ModuleError(errno.EBUSY, f"{name} is in use: {', '.join(users)}")
        if "cleanup_module" not in module.labels and self.is_running(module):
            raise ModuleError(errno.EBUSY, f"a task is in {name}")
        if failed := self._call(module, "cleanup_module"):
            raise ModuleError(-failed, f"cleanup_module of {name} failed")
        self._free_module(module)

    def used_by(self, module: Module) -> list[str]:
        """Who needs a module that is loaded."""
        return [user for users in self.users for user in users(module)]

    def _call(self, module: Module, name: str) -> int:
        """The error that a function of the module answers, negative; 0 for none."""
        function = module.labels.get(name)
        answer = 0 if function is None else self._machine.call(function) & 0xFFFFFFFF
        return answer - (1 << 32) if answer >> 31 else 0

    def _free_module(self, module: Module) -> None:
        for notify in self.going:
            notify(module)
        del self.loaded[module.name]
        self.generation += 1
        if self.is_running(module):
            # Whoever it is goes on; or it is only a word that was left on a stack.
            log.info("a stack leads into %s, which is gone: its text stays", module.name)
            return
        for section, (address, data) in module.segments.items():
            filler = _INT3 if section.startswith(".text") else b"\0"
            self._machine.load_segments({section: (address, filler * len(data))})
