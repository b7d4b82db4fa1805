"""Linking of compiled code: each entry is linked with all kernels it reaches and optimised once.

By default Numba optimises each function together with everything it calls and emits machine code for it, so a kernel
ten calls below an entry is optimised ten times.

Numba has no type annotations; lines that extend or call its classes carry `type: ignore`.
"""

from pathlib import Path
from typing import Any, cast

import llvmlite.binding as llvm
from numba.core import itanium_mangler
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from openmrc.core.cache import PACKAGE


class KernelCode(JITCodeLibrary):  # type: ignore[misc,unused-ignore]
    """The compiled library of a kernel: linked into the entries that reach it, never emitted as machine code.

    Numba would optimise and emit each kernel together with its callees, again at every level of calls.
    """

    def finalize(self) -> None:
        """Do nothing: entries link and optimise."""
        self._finalized = True

    @property
    def defined(self) -> list[Any]:
        """Return the functions with a body: the kernel."""
        return defined_in(self._final_module.functions)

    def get_pointer_to_function(self, _name: str) -> int:
        """Return null: Python never calls it."""
        return 0

    @property
    def codegen(self) -> Any:
        """Return a placeholder: only loaded code has environments, and kernels are not loaded."""
        return self

    def set_env(self, _name: str, _environment: Any) -> None:
        """Do nothing, see `codegen`."""


class EntryCode(JITCodeLibrary):  # type: ignore[misc,unused-ignore]
    """The compiled library of an entry: linked with all kernels it reaches and optimised as a whole."""

    portable = b""  # bitcode of all that is linked, before a processor matters

    @classmethod
    def of_portable(cls, codegen: Any, name: str, portable: bytes) -> Any:
        """Return what `serialize_using_object_code` would, from portable code; nothing is loaded."""
        code = cls(codegen, name)  # type: ignore[no-untyped-call,unused-ignore]
        code._final_module = llvm.parse_bitcode(portable)
        code._optimize_final_module()
        machine_code = codegen._tm.emit_object(code._final_module)
        return name, "object", (machine_code, llvm.parse_assembly(code._stub()).as_bitcode())

    def finalize(self) -> None:
        """Link, optimise and load."""
        self._linking_libraries = link_kernels(self)
        super().finalize()  # type: ignore[no-untyped-call,unused-ignore]

    def serialize_using_object_code(self) -> Any:
        """Store machine code, and of the code for linking only the names: entries are called, not linked.

        To parse that code at every start took 9 MB of memory.
        """
        name, kind, (machine_code, _) = super().serialize_using_object_code()  # type: ignore[no-untyped-call,unused-ignore]
        return name, kind, (machine_code, llvm.parse_assembly(self._stub()).as_bitcode())

    def _stub(self) -> str:
        """Return a module that defines all names of this one."""
        module, codegen = self._final_module, cast("Any", self._codegen)
        functions = (f'define void @"{each.name}"() {{ unreachable }}' for each in defined_in(module.functions))
        variables = (f'@"{each.name}" = global i8 0' for each in defined_in(module.global_variables))
        return "\n".join([str(codegen._create_empty_module(self.name)), *functions, *variables])

    def _optimize_final_module(self) -> None:
        """Give linked functions internal linkage first: LLVM may then drop them, or their unused arguments."""
        self.portable = self._final_module.as_bitcode()
        for function in self._final_module.functions:
            if function.linkage == llvm.Linkage.linkonce_odr:
                function.linkage = "internal"
        super()._optimize_final_module()  # type: ignore[no-untyped-call,unused-ignore]


def link_kernels(code: EntryCode) -> list[Any]:
    """Link an entry with all kernels it reaches; return the other libraries that it calls."""
    reached = _reached(code)
    kernels = [library for library in reached if isinstance(library, KernelCode)]
    for library in kernels:
        code._final_module.link_in(library._final_module, preserve=True)
    for name in (function.name for library in kernels for function in library.defined):
        function = code._final_module.get_function(name)
        function.linkage = "linkonce_odr"
        if not any(b"alwaysinline" in attributes for attributes in function.attributes):
            function.add_function_attribute("noinline")
    return [library for library in reached if library not in kernels]


def defined_in(values: Any) -> list[Any]:
    """Return the functions or variables of a module that it defines, not only declares."""
    return [value for value in values if not value.is_declaration]


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
    """Return a short symbol for a kernel; Numba's contains the types of all tables, several kilobytes."""
    return str(itanium_mangler.mangle(name, (), uid=uid))  # type: ignore[no-untyped-call,unused-ignore]


class EntryCompiler(Compiler):  # type: ignore[misc,unused-ignore]
    """Numba's compiler, for functions that Python calls."""

    code: Any = EntryCode

    def compile_extra(self, func: Any) -> Any:
        """Compile with our code library."""
        self.state.library = self.code(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)  # type: ignore[no-untyped-call,unused-ignore]

    def _compile_bytecode(self) -> Any:
        """Compile under the source's path in the package: assertions keep it in the code, which is shipped."""
        source, root = Path(self.state.func_id.filename), PACKAGE.parent
        self.state.func_id.filename = str(source.relative_to(root)) if source.is_relative_to(root) else source.name
        return super()._compile_bytecode()  # type: ignore[no-untyped-call,unused-ignore]


class KernelCompiler(EntryCompiler):
    """Numba's compiler, for functions that only entries reach."""

    code = KernelCode

    def compile_extra(self, func: Any) -> Any:
        """Compile under a short name."""
        self.state.targetctx.mangler = _symbol
        return super().compile_extra(func)
