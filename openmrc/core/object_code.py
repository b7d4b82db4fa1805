"""Entries as object files: the same kernels, compiled ahead of time for a linker and a plain C caller.

A function `name` of 64-bit integers and tables becomes the C function `name` with hidden visibility:

    int32_t name(int64_t *result, void **exception, arguments...);

It returns 0 unless an assertion failed. Code is position-independent and for a processor of the caller's choice, so
call this in a process that was started with `NUMBA_CPU_NAME` set: the optimiser reads it when it is imported.

Numba has no type annotations; lines that extend or call its classes carry `type: ignore`.
"""

from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding as llvm
from numba import njit
from numba.core.registry import cpu_target

from openmrc.core.entry_cache import EntryCache
from openmrc.core.jit import ENTRY_OPTIONS
from openmrc.core.linking import EntryCode, EntryCompiler, KernelCode, defined_in, link_kernels

_RUNTIME = "nrt"  # Numba's library for allocations: nothing here allocates


class ObjectCode(EntryCode):
    """The compiled library of an entry that is written to a file, and never loaded: in that it is like a kernel's."""

    get_pointer_to_function = KernelCode.get_pointer_to_function
    codegen = KernelCode.codegen
    set_env = KernelCode.set_env

    def finalize(self) -> None:
        """Link everything that the entry reaches."""
        others = link_kernels(self)
        for library in others:
            if library.name != _RUNTIME:
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class ObjectCompiler(EntryCompiler):
    """Numba's compiler, for functions that C calls."""

    code = ObjectCode


def compile_object(
    function: Callable[..., Any], name: str, arguments: tuple[Any, ...], triple: str, cpu: str, is_shown: bool = False
) -> bytes:
    """Return an object file with `function` as the C function `name`; `arguments` are WORD, WORDS or MATRIX each.

    Of an entry that was compiled for Python, the portable code in the cache serves. If it `is_shown`, a shared object
    that it is linked into exports it.
    """
    library, symbol = _linked(function, arguments)
    module = library._final_module
    _make_internal(module, symbol)
    library._optimize_final_module()
    _keep_only(module, symbol, name)
    module.get_function(name).visibility = "default" if is_shown else "hidden"
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features="", opt=3, reloc="pic", codemodel="default"
    )
    return bytes(machine.emit_object(module))


def _linked(function: Any, arguments: tuple[Any, ...]) -> tuple[ObjectCode, str]:
    """Return a function with all that it reaches, and its symbol: an entry from the cache if it is there."""
    cache = getattr(function, "_cache", None)
    portable = cache.portable_code(arguments) if isinstance(cache, EntryCache) else None
    if portable is not None:
        library = ObjectCode(cpu_target.target_context.codegen(), portable.name)  # type: ignore[no-untyped-call,unused-ignore]
        library._final_module = llvm.parse_bitcode(portable.bitcode)
        return library, portable.symbol
    options = {**ENTRY_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": ObjectCompiler}
    dispatcher = cast("Any", njit)(nogil=True, **options)(getattr(function, "py_func", function))
    dispatcher.compile(arguments)
    (compiled,) = dispatcher.overloads.values()
    compiled.library.finalize()
    return compiled.library, compiled.fndesc.llvm_func_name


def _make_internal(module: Any, symbol: str) -> None:
    """Let the optimiser drop every function that `symbol` does not reach, or its unused arguments."""
    for function in defined_in(module.functions):
        if function.name != symbol:
            function.linkage = "internal"


def _keep_only(module: Any, symbol: str, name: str) -> None:
    """Rename the function `symbol`, and remove all that it does not reach."""
    entry = module.get_function(symbol)
    entry.name = name
    for variable in defined_in(module.global_variables):
        variable.linkage = "internal"
    passes, tuning = llvm.create_new_module_pass_manager(), llvm.create_pipeline_tuning_options()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_symbols_pass()
    machine = llvm.Target.from_default_triple().create_target_machine()
    passes.run(module, llvm.create_pass_builder(machine, tuning))
