"""Request short scheduling latency for the endpoint's thread.

Since Linux 6.12 a thread may set its time slice. A thread with short slices is scheduled earlier when more threads are
runnable than processors, with the same total share. No privilege is needed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

SLICE_NS = 100_000  # the kernel's minimum
_SYSCALL = {"x86_64": 314, "aarch64": 274, "riscv64": 274}  # sched_setattr
_SIZE = 48  # bytes of the first struct sched_attr


def ask_for_short_slices() -> bool:
    """Request short slices for this thread at its current niceness; return False if the kernel does not support it.

    A real-time policy is left unchanged.
    """
    peer = _SYSCALL.get(platform.machine())
    if peer is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("=IIQiIQQQ", _SIZE, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    return int(ctypes.CDLL(None).syscall(peer, 0, attributes, 0)) == 0
