"""Import one module with changed source, in a process that has not imported it yet: nothing of openmrc is used here.

As a plugin of pytest (`-p spec.changed_import`) it changes what the environment names: `CHANGED_MODULE`, with its whole
name, and `CHANGED_SOURCE`, a file.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass
class ChangedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, with changed source."""

    name: str
    text: str
    path: str

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return how to load it; None for any other."""
        if fullname != self.name:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=self.path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        module.__file__ = self.path
        exec(compile(self.text, self.path, "exec"), module.__dict__)

    def install(self) -> None:
        """Be asked before the files."""
        sys.meta_path.insert(0, self)


if "CHANGED_MODULE" in os.environ:
    _name = os.environ["CHANGED_MODULE"]
    _path = Path(__file__).parent.parent.joinpath(*_name.split(".")).with_suffix(".py")
    ChangedModule(_name, Path(os.environ["CHANGED_SOURCE"]).read_text(encoding="utf-8"), str(_path)).install()
