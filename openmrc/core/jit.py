"""Compilation of kernels and entries; imported by the others of `core` that import Numba.

A *kernel* is a plain Python function that compiled code may call; called from Python it stays
plain Python, so tests, coverage and pdb see it. An *entry* is a function that Python calls and
that is compiled, once, with everything it reaches; `entry.py_func` is its interpreted twin.

Compiled entries are cached, see `cache`.
"""

import ctypes
import gc
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import llvmlite.binding as llvm
from numba import njit, typeof, types
from numba.core import config as _config
from numba.core import event
from numba.extending import intrinsic, overload
from numba.np import linalg as _linalg

from openmrc.core.cache import SHIPPED, cache_dir, is_compiled, is_left_out
from openmrc.core.entry_cache import EntryCache, Locator
from openmrc.core.kernel_type import callable_by_compiled_code
from openmrc.core.linking import EntryCompiler, KernelCompiler
from openmrc.core.table_tuples import TableTuple, copy_tables

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

config: Any = _config  # attributes are created at import, invisible to type checkers


# numpy error model: no ZeroDivisionError branch in every division.
# _nrt=False: a kernel that allocates does not compile.
ENTRY_OPTIONS: Any = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
# Inlining made the joined endpoints of bench/engine/pair.py 8 times faster, when calls still copied every table.
# forceinline must be set to False explicitly: a callee inherits options that it does not set.
_CALLED: Any = {**ENTRY_OPTIONS, "forceinline": False, "pipeline_class": KernelCompiler}
INLINED: Any = {**_CALLED, "forceinline": True}

LONG = ("take_in", "send_out", "run_window")  # the entries that hold an engine or most of it

# The processor that shipped code is compiled for: any of x86-64 since about 2015. On one with AVX-512 the joined
# endpoints of bench/engine/pair.py are as fast as with code for that processor alone.
SHIPPED_CPU = "x86-64-v3"
SHIPPED_CPU_FEATURES = frozenset(("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"))  # x86-64 psABI, v3

_entries: set[Any] = set()


def _target_shipped_code() -> None:
    """Compile for the processor of the shipped code, if there is any and it can run here; else it is not found."""
    if not SHIPPED.is_dir() or config.CPU_NAME is not None:
        return
    features = {name for name, present in llvm.get_host_cpu_features().items() if present}
    if features >= SHIPPED_CPU_FEATURES:
        config.CPU_NAME, config.CPU_FEATURES = SHIPPED_CPU, ""


_target_shipped_code()


def _import_without_scipy() -> None:
    """Import the module of Numba that looks for BLAS by importing SciPy: 15 MB and 0.2 s that no kernel needs.

    A program's own compiled functions may use linear algebra: Numba imports SciPy when it compiles them.
    """
    linalg: Any = _linalg
    look = linalg.ensure_blas

    def is_installed() -> None:
        if importlib.util.find_spec("scipy") is None:
            raise ImportError("SciPy is not installed")

    linalg.ensure_blas = is_installed
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = look


_import_without_scipy()


class CompiledEntry(Protocol[P, R_co]):
    """A compiled function with its interpreted version `py_func`."""

    py_func: Callable[..., Any]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Make `function` callable from compiled code, inlined; called from Python it stays plain Python."""
    return callable_by_compiled_code(function, INLINED)


def rare_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Make `function` callable from compiled code, never inlined: for rare paths, to keep compiled code small."""
    return callable_by_compiled_code(function, _CALLED)


def entry(function: Callable[P, R]) -> CompiledEntry[P, R]:
    """Compile a function for calls from Python; it runs without the GIL and is cached."""
    # NUMBA_DISABLE_JIT=1: everything runs interpreted, for debuggers and coverage
    if config.DISABLE_JIT or is_left_out(function.__name__):
        function.py_func = function  # type: ignore[attr-defined]
        return cast("CompiledEntry[P, R]", function)
    world = function.__module__.removeprefix("openmrc.").split(".")[0]
    outer = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    config.CACHE_DIR = str(code_folder(world))
    config.CACHE_LOCATOR_CLASSES = f"{Locator.__module__}.{Locator.__name__}"
    try:
        compiled = njit(nogil=True, pipeline_class=EntryCompiler, **ENTRY_OPTIONS)(function)
        compiled._cache = EntryCache(function)  # type: ignore[no-untyped-call,unused-ignore]  # as by cache=True
        compiled._cache.say = _say
        _entries.add(compiled)
        return cast("CompiledEntry[P, R]", compiled)
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = outer


def code_folder(world: str) -> Path:
    return cache_dir(world, _flags(), _say)


def is_ready(world: str, name: str) -> bool:
    """Whether an entry of `world` needs no compiling here."""
    return bool(config.DISABLE_JIT) or is_compiled(world, _flags(), name)


def _flags() -> str:
    return f"bounds checked: {config.BOUNDSCHECK}"


def external(library: str | None, symbol: str, returns: str, *takes: str) -> Callable[..., int]:
    """Return the C function `symbol` of a shared library (None: the C library), for kernels and for Python.

    Types are the common names of `ctypes` and Numba, such as "int64" or "uint32"; pass addresses as
    int64. The symbol is bound again at every start, so a cached entry never holds a stale address.
    """
    if library is not None:
        llvm.load_library_permanently(library)
    signature = getattr(types, returns)(*(getattr(types, take) for take in takes))
    compiled = types.ExternalFunction(symbol, signature)
    interpreted = getattr(ctypes.CDLL(library), symbol)
    interpreted.restype = getattr(ctypes, f"c_{returns}")
    interpreted.argtypes = [getattr(ctypes, f"c_{take}") for take in takes]

    def call(*args: int) -> int:
        return int(interpreted(*args))

    overload(call, inline="never", jit_options=INLINED)(lambda *args: lambda *args: compiled(*args))
    return call


def table_handle(sample: Any) -> tuple[Callable[[Any, int], None], Callable[[int], Any]]:
    """Return kernels `pin(value, address)` and `at(address)` for values of the type of `sample`.

    Passing fifty tables from Python takes 8 us. An entry that is called often takes instead the address of memory in
    which another entry has stored them once; the owner of that memory keeps the tables alive.
    """
    kind: Any = typeof(sample)  # type: ignore[no-untyped-call,unused-ignore]
    held: dict[int, Any] = {}

    assert isinstance(kind, TableTuple)

    @intrinsic  # type: ignore[misc,unused-ignore]
    def _store(_context: Any, value: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[1], context.get_value_type(signature.args[0]))
            copy_tables(builder, signature.args[0], arguments[0], place)
            return context.get_dummy_value()

        return types.void(value, types.int64), emit

    @intrinsic  # type: ignore[misc,unused-ignore]
    def _load(_context: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return kind(types.int64), emit

    store: Any = _store  # to type checkers an intrinsic takes the compiler's context too
    load: Any = _load

    def pin(value: Any, address: int) -> None:
        held[address] = value

    def at(address: int) -> Any:
        return held[address]

    overload(pin, jit_options=INLINED)(lambda value, address: lambda value, address: store(value, address))
    overload(at, jit_options=INLINED)(lambda address: lambda address: load(address))
    return pin, at


class _Compiling(event.Listener):  # type: ignore[misc,unused-ignore]
    """Reports on stderr when an entry is compiled and how long it took; holds Python's collector of cycles meanwhile.

    The collector takes a seventh of the time, and frees little. Entries are compiled one inside the other where one
    holds another's address.
    """

    def __init__(self) -> None:
        self._begun: list[float] = []  # of those that are being compiled
        self._was_enabled = False

    def on_start(self, happening: Any) -> None:
        compiled = happening.data["dispatcher"]
        if compiled in _entries:
            if not self._begun:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._begun.append(time.monotonic())
            takes = ", about a minute" if compiled.__name__ in LONG else ""
            _say(f"openmrc: compiling {compiled.__name__} (once{takes}; cached afterwards) ...")

    def on_end(self, happening: Any) -> None:
        compiled = happening.data["dispatcher"]
        if compiled in _entries:
            _say(f"openmrc: compiled {compiled.__name__} in {time.monotonic() - self._begun.pop():.1f} s")
            if not self._begun and self._was_enabled:
                gc.enable()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  # compiling takes long enough to look like a hang


event.register("numba:compile", _Compiling())  # type: ignore[no-untyped-call,unused-ignore]
