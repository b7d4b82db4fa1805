"""Calls that survive memory which is not there: a fault in a registered region ends the call, not the process.

Entries cannot catch a fault of the processor, and there may be no C compiler, so what catches it is written in LLVM's
language: a function that notes where to go on, and a handler of SIGSEGV and SIGBUS that goes there if the thread is
inside, and the address lies in a region. All other faults go to who had the signal before. The native library has the
same in C (`native/src/endpoint/guard.c`).
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import llvmlite.binding as llvm
import numpy as np

_MOST = 256  # endpoints that are guarded at a time
_OWNERS = np.zeros((_MOST, 3), np.int64)  # what a call is for, where its table of regions begins, its rows
_FLAGS = 0x4 | 0x0800_0000 | 0x4000_0000  # SA_SIGINFO, SA_ONSTACK, SA_NODEFER
_EXTERNAL = """
declare i32 @_setjmp(ptr) returns_twice
declare void @longjmp(ptr, i32) noreturn
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare i32 @sigaction(i32, ptr, ptr)
@inside = internal global i32 0
define void @open() {
  call i32 @pthread_key_create(ptr @inside, ptr null)
  ret void
}
"""
# A guard is 512 bytes for jmp_buf, then what the call is for, then the address that it faulted at.
_CALL = """
define i32 @call_%(name)s(ptr %%result, ptr %%exception, i64 %%at, i64 %%one, i64 %%other) {
  %%guard = alloca [66 x i64], align 16
  %%ignored = alloca i64
  %%owner = getelementptr i64, ptr %%guard, i64 64
  %%place = getelementptr i64, ptr %%guard, i64 65
  store volatile i64 %%at, ptr %%owner
  %%key = load i32, ptr @inside
  %%again = call i32 @_setjmp(ptr %%guard) returns_twice
  %%faulted = icmp ne i32 %%again, 0
  br i1 %%faulted, label %%caught, label %%try
try:
  %%function = inttoptr i64 %(function)d to ptr
  call i32 @pthread_setspecific(i32 %%key, ptr %%guard)
  %%status = call i32 %%function(ptr %%result, ptr %%exception, i64 %%at, i64 %%one, i64 %%other)
  call i32 @pthread_setspecific(i32 %%key, ptr null)
  ret i32 %%status
caught:
  %%recover = inttoptr i64 %(recover)d to ptr
  %%address = load volatile i64, ptr %%place
  store i64 0, ptr %%result
  %%done = call i32 %%recover(ptr %%ignored, ptr %%exception, i64 %%at, i64 %%address, i64 %(arriving)d)
  ret i32 0
}
"""
_HANDLER = """
define void @on_fault(i32 %%number, ptr %%info, ptr %%context) {
  %%key = load i32, ptr @inside
  %%guard = call ptr @pthread_getspecific(i32 %%key)
  %%code_at = getelementptr i8, ptr %%info, i64 8
  %%code = load i32, ptr %%code_at
  %%address_at = getelementptr i8, ptr %%info, i64 16
  %%address = load i64, ptr %%address_at
  %%is_inside = icmp ne ptr %%guard, null
  %%is_fault = icmp sgt i32 %%code, 0
  %%is_ours = and i1 %%is_inside, %%is_fault
  br i1 %%is_ours, label %%find, label %%hand_on
find:
  %%owner_at = getelementptr i64, ptr %%guard, i64 64
  %%at = load i64, ptr %%owner_at
  br label %%each_owner
each_owner:
  %%n = phi i64 [0, %%find], [%%next_n, %%other_owner]
  %%owner_offset = mul i64 %%n, 24
  %%owner_address = add i64 %%owner_offset, %(owners)d
  %%owner = inttoptr i64 %%owner_address to ptr
  %%who = load i64, ptr %%owner
  %%is_who = icmp eq i64 %%who, %%at
  br i1 %%is_who, label %%found, label %%other_owner
other_owner:
  %%next_n = add i64 %%n, 1
  %%has_more = icmp ult i64 %%next_n, %(most)d
  br i1 %%has_more, label %%each_owner, label %%hand_on
found:
  %%base_at = getelementptr i64, ptr %%owner, i64 1
  %%base = load i64, ptr %%base_at
  %%count_at = getelementptr i64, ptr %%owner, i64 2
  %%count = load i64, ptr %%count_at
  br label %%each_region
each_region:
  %%k = phi i64 [0, %%found], [%%next_k, %%other_region]
  %%row_offset = mul i64 %%k, %(stride)d
  %%row_address = add i64 %%row_offset, %%base
  %%row = inttoptr i64 %%row_address to ptr
  %%r_key_at = getelementptr i8, ptr %%row, i64 %(r_key)d
  %%r_key = load i64, ptr %%r_key_at
  %%local_at = getelementptr i8, ptr %%row, i64 %(local)d
  %%local = load i64, ptr %%local_at
  %%length_at = getelementptr i8, ptr %%row, i64 %(length)d
  %%length = load i64, ptr %%length_at
  %%offset = sub i64 %%address, %%local
  %%is_within = icmp ult i64 %%offset, %%length
  %%is_used = icmp ne i64 %%r_key, 0
  %%is_it = and i1 %%is_within, %%is_used
  br i1 %%is_it, label %%leave, label %%other_region
other_region:
  %%next_k = add i64 %%k, 1
  %%has_others = icmp ult i64 %%next_k, %%count
  br i1 %%has_others, label %%each_region, label %%hand_on
leave:
  %%place = getelementptr i64, ptr %%guard, i64 65
  store volatile i64 %%address, ptr %%place
  call i32 @pthread_setspecific(i32 %%key, ptr null)
  call void @longjmp(ptr %%guard, i32 1)
  unreachable
hand_on:
  %%is_bus = icmp eq i32 %%number, %(bus)d
  %%earlier_address = select i1 %%is_bus, i64 %(earlier_bus)d, i64 %(earlier_segv)d
  %%earlier = inttoptr i64 %%earlier_address to ptr
  %%restored = call i32 @sigaction(i32 %%number, ptr %%earlier, ptr null)
  ret void
}
"""


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


@functools.cache
def _calls(first: int, second: int, recover: int, row: np.dtype[Any]) -> tuple[int, int]:
    fields: Any = row.fields
    places = {name: fields[name][1] for name in ("r_key", "local", "length")}
    actions = (("earlier_segv", _SIGSEGV), ("earlier_bus", _SIGBUS))
    earlier = {name: ctypes.addressof(_earlier[number]) for name, number in actions}
    numbers = {"owners": _OWNERS.ctypes.data, "most": _MOST, "bus": _SIGBUS, "stride": row.itemsize}
    text = _EXTERNAL + _HANDLER % {**numbers, **places, **earlier}
    for name, function, arriving in (("first", first, 1), ("second", second, 0)):
        text += _CALL % {"name": name, "function": function, "recover": recover, "arriving": arriving}
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
