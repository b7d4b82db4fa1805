"""Calls that survive memory which is not there: a fault in a registered region ends the call, not the process.

Entries cannot catch a fault of the processor, and there may be no C compiler, so what catches it is written in LLVM's
language: a function that notes where to go on, and a handler of SIGSEGV and SIGBUS that goes there if the thread is
inside, and the address lies in a region. All other faults go to who had the signal before. The native library has the
same in C (`native/src/endpoint/guard.c`).
"""

import ctypes
import functools
import sys
from pathlib import Path
from string import Template
from typing import Any

import llvmlite.binding as llvm
import numpy as np

_MOST = 256  # endpoints that are guarded at a time
_OWNERS = np.zeros((_MOST, 3), np.int64)  # what a call is for, where its table of regions begins, its rows
_FLAGS = 0x4 | 0x0800_0000 | 0x4000_0000  # SA_SIGINFO, SA_ONSTACK, SA_NODEFER


class _Action(ctypes.Structure):
    """`struct sigaction` of Linux's C libraries."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_SIGSEGV, _SIGBUS = 11, 7  # of Linux, where this runs
_earlier = {_SIGSEGV: _Action(), _SIGBUS: _Action()}


def guard(at: int, regions: Any, first: int, second: int, recover: int) -> tuple[int, int]:
    """Return guarded addresses of two entries, which take `at` and two numbers; `release` it at the end.

    A call that faults in a row of `regions` (r_key, local, length) returns 0 after the entry `recover` was called with
    `at`, the address, and 1 for the first entry or 0 for the second. Elsewhere than on Linux nothing is guarded.
    """
    release(at)
    free = np.flatnonzero(_OWNERS[:, 0] == 0)
    if sys.platform != "linux" or 0 in (first, second, recover) or not len(free):
        return first, second
    rows = np.asarray(regions)
    calls = _calls(first, second, recover, rows.dtype)
    _OWNERS[free[0], 1:] = rows.ctypes.data, len(rows)
    _OWNERS[free[0], 0] = at
    return calls


def release(at: int) -> None:
    """Guard calls for `at` no longer: none is running any more."""
    _OWNERS[_OWNERS[:, 0] == at, 0] = 0


def _template(name: str) -> Template:
    return Template(Path(__file__).with_name(f"{name}.ll").read_text("utf-8"))


@functools.cache
def _calls(first: int, second: int, recover: int, row: np.dtype[Any]) -> tuple[int, int]:
    fields: Any = row.fields
    places = {name: fields[name][1] for name in ("r_key", "local", "length")}
    actions = (("earlier_segv", _SIGSEGV), ("earlier_bus", _SIGBUS))
    earlier = {name: ctypes.addressof(_earlier[number]) for name, number in actions}
    numbers = {"owners": _OWNERS.ctypes.data, "most": _MOST, "bus": _SIGBUS, "stride": row.itemsize}
    text = _template("fault_guard").substitute(numbers | places | earlier)
    for name, function, arriving in (("first", first, 1), ("second", second, 0)):
        text += _template("guarded_call").substitute(name=name, function=function, recover=recover, arriving=arriving)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=1, codemodel="jitdefault")
    compiled = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    compiled.finalize_object()
    _kept.append(compiled)
    ctypes.CFUNCTYPE(None)(compiled.get_function_address("open"))()
    action = _Action(handler=compiled.get_function_address("on_fault"), flags=_FLAGS)
    for number, before in _earlier.items():
        ctypes.CDLL(None).sigaction(number, ctypes.byref(action), ctypes.byref(before))
    return compiled.get_function_address("call_first"), compiled.get_function_address("call_second")


_kept: list[Any] = []  # machine code lives as long as its compiler
