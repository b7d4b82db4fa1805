"""How compiled code is put together: each entry is linked with every kernel it reaches, and optimised once.

Left to itself Numba optimises each function along with all that it calls and emits machine code of it, so a kernel ten
calls below an entry is optimised ten times.

Numba has no types: where one of its classes is extended or called, type checkers are told so line by line.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core import itanium_mangler
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class KernelCode(JITCodeLibrary):  # type: ignore[misc,unused-ignore]
    """What was compiled of a kernel: linked into the entries that reach it, never machine code by itself.

    Numba would optimise and emit every kernel along with everything below it: what lies deep, once a level of calls.
    """

    def finalize(self) -> None:
        """Leave linking and optimising to the entries."""
        self._finalized = True

    @property
    def defined(self) -> list[Any]:
        """The functions that are not only declared: the kernel."""
        return [function for function in self._final_module.functions if not function.is_declaration]

    def get_pointer_to_function(self, _name: str) -> int:
        """Return null: Python never calls it."""
        return 0

    @property
    def codegen(self) -> Any:
        """Stand in for the holder of environments: they belong to loaded code, and this is loaded nowhere."""
        return self

    def set_env(self, _name: str, _environment: Any) -> None:
        """Do nothing, see `codegen`."""


class EntryCode(JITCodeLibrary):  # type: ignore[misc,unused-ignore]
    """What was compiled of an entry: linked with every kernel that it reaches, optimised as one."""

    def finalize(self) -> None:
        """Link, optimise and load."""
        reached = _reached(self)
        kernels = [library for library in reached if isinstance(library, KernelCode)]
        for library in kernels:
            self._final_module.link_in(library._final_module, preserve=True)
        for name in (function.name for library in kernels for function in library.defined):
            function = self._final_module.get_function(name)
            function.linkage = "linkonce_odr"
            if not any(b"alwaysinline" in attributes for attributes in function.attributes):
                function.add_function_attribute("noinline")
        self._linking_libraries = [library for library in reached if library not in kernels]
        super().finalize()  # type: ignore[no-untyped-call,unused-ignore]

    def _optimize_final_module(self) -> None:
        """Hide what was linked first: LLVM may then drop it, or arguments that it does not use."""
        for function in self._final_module.functions:
            if function.linkage == llvm.Linkage.linkonce_odr:
                function.linkage = "internal"
        super()._optimize_final_module()  # type: ignore[no-untyped-call,unused-ignore]


def _reached(code: Any) -> dict[Any, None]:
    """Return the libraries that an entry calls, and those that their kernels call, each once."""
    found: dict[Any, None] = {}
    waiting = list(code._linking_libraries)
    while waiting:
        library = waiting.pop()
        if library not in found:
            found[library] = None
            waiting.extend(library._linking_libraries if isinstance(library, KernelCode) else ())
    return found


def _symbol(name: str, _types: Any, *, abi_tags: Any = (), uid: int | None = None) -> str:
    """Return the symbol of a kernel, by number: Numba's spells out the rows of all tables, which is kilobytes."""
    return str(itanium_mangler.mangle(name, (), uid=uid))  # type: ignore[no-untyped-call,unused-ignore]


class EntryCompiler(Compiler):  # type: ignore[misc,unused-ignore]
    """Numba's compiler, for functions that Python calls."""

    code: Any = EntryCode

    def compile_extra(self, func: Any) -> Any:
        """Compile into code of our kind."""
        self.state.library = self.code(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)  # type: ignore[no-untyped-call,unused-ignore]


class KernelCompiler(EntryCompiler):
    """Numba's compiler, for functions that only entries reach."""

    code = KernelCode

    def compile_extra(self, func: Any) -> Any:
        """Compile under a short name."""
        self.state.targetctx.mangler = _symbol
        return super().compile_extra(func)
