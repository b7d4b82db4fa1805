"""How long a waiting call polls before it sleeps: as requested, or as long as a wake-up takes on this machine.

A wake-up takes 3 us between threads of a busy virtual machine and 30 us where the idle processor sleeps deeply. It is
measured once in a process, between two threads and two eventfds. A thread with short time slices, which it may
set without a privilege since Linux 6.12, is scheduled earlier when more threads are runnable than processors, with the
same share.
"""

import ctypes
import functools
import os
import platform
import struct
import threading
import time

import numpy as np

from openmrc.live.checks import MOST_POLL_US, is_poll_time
from openmrc.live.datapath.loop.waiting import bounce
from openmrc.live.errors import InvalidArgumentError

VARIABLE = "MRC_POLL_US"
# A round trip that neither end polls has four wake-ups, two to wake and two to fall asleep; a peer's program may take
# as long again.
WAKE_UPS = 8
LEAST_US, MOST_US = 50.0, 200.0  # least: an answer from a program in Python takes 40 us on a machine of 2020
_END_SECONDS = 5.0  # for a thread that has ended with its last round
_BATCHES, _ROUNDS = 8, 8
SLICE_NS = 100_000  # the kernel's minimum
_SYSCALL = {"x86_64": 314, "aarch64": 274, "riscv64": 274}  # sched_setattr
_SIZE = 48  # bytes of the first struct sched_attr


def poll_us(wanted: float | None) -> float:
    """Return how long (us) to poll: `wanted`, or what the environment says, or what suits this machine."""
    if wanted is not None:
        return wanted
    text = os.environ.get(VARIABLE)
    if text is None:
        return min(max(WAKE_UPS * wake_up_us(), LEAST_US), MOST_US)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not is_poll_time(value):
        raise InvalidArgumentError(f"{VARIABLE}: {text!r} is not a number of microseconds in 0..{MOST_POLL_US}")
    return value


@functools.cache
def wake_up_us() -> float:
    """Return how long (us) a thread of this process takes to wake another and to fall asleep: the best of a few."""
    near, far = os.eventfd(0, os.EFD_CLOEXEC), os.eventfd(0, os.EFD_CLOEXEC)
    words = np.zeros(2, np.int64)
    mine, others = words.ctypes.data, words.ctypes.data + words.itemsize
    other = threading.Thread(target=bounce, args=(far, near, _BATCHES * _ROUNDS, others, 0), name="openmrc wake-ups")
    bounce(near, far, 0, mine, 1)  # compiled, or loaded from the cache
    other.start()
    times = []
    for _ in range(_BATCHES):
        began = time.perf_counter()
        bounce(near, far, _ROUNDS, mine, 1)
        times.append(time.perf_counter() - began)
    other.join(_END_SECONDS)
    os.close(near)
    os.close(far)
    return min(times) * 1e6 / (2 * _ROUNDS)


def ask_for_short_slices() -> None:
    """Request short slices for this thread at its niceness; a real-time policy is left, and old kernels refuse it."""
    number = _SYSCALL.get(platform.machine())
    if number is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        attributes = struct.pack("=IIQiIQQQ", _SIZE, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
