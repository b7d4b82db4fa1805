"""The functions of the C library that the data path calls, and their structures.

All arguments are 64-bit, as registers pass them on every 64-bit Linux. Structures are rows of 64-bit
words, which is their layout on little-endian machines; `check` refuses others.
"""

import sys

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import external, kernel
from openmrc.core.rows import Int
from openmrc.errors import ConfigError
from openmrc.units import PS_PER_NS, PS_PER_S

Words = NDArray[np.int64]

send_messages = external(None, "sendmmsg", "int32", "int64", "int64", "int64", "int64")
receive_messages = external(None, "recvmmsg", "int32", "int64", "int64", "int64", "int64", "int64")
receive_bytes = external(None, "recv", "int64", "int64", "int64", "int64", "int64")
wait_for = external(None, "ppoll", "int32", "int64", "int64", "int64", "int64")
copy = external(None, "memcpy", "int64", "int64", "int64", "int64")
signal_eventfd = external(None, "eventfd_write", "int32", "int64", "int64")
drain_eventfd = external(None, "eventfd_read", "int32", "int64", "int64")
advise = external(None, "madvise", "int32", "int64", "int64", "int64")
lock = external(None, "pthread_mutex_lock", "int32", "int64")
try_lock = external(None, "pthread_mutex_trylock", "int32", "int64")
unlock = external(None, "pthread_mutex_unlock", "int32", "int64")
yield_processor = external(None, "sched_yield", "int32")
_read_clock = external(None, "clock_gettime", "int32", "int64", "int64")
_errno_address = external(None, "__errno_location", "int64")

MSG_DONTWAIT = 0x40
EAGAIN = 11
POLLIN, POLLOUT = 1, 4
MADV_NOHUGEPAGE = 15
MUTEX_WORDS = 8  # pthread_mutex_t is 40 or 48 bytes; all zero is an unlocked one
SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 101, 102
IPPROTO_IP, IP_TOS = 0, 1
IPPROTO_IPV6, IPV6_TCLASS, IPV6_FLOWINFO = 41, 67, 11
SOL_SOCKET, SO_RXQ_OVFL = 1, 40
_CLOCK_MONOTONIC = 1


class MessageHeader:
    """`struct mmsghdr`."""

    name: Int  # address of a sockaddr
    name_length: Int
    vectors: Int  # address of IoVector rows
    vector_count: Int
    control: Int
    control_length: Int
    flags: Int
    length: Int  # bytes that were sent or received


class IoVector:
    """`struct iovec`."""

    base: Int
    length: Int


class SendControl:
    """Two control messages: the type of service, then the size of segments."""

    tos_length: Int
    tos_kind: Int
    tos: Int
    segment_length: Int
    segment_kind: Int
    segment: Int


ONE_CONTROL, BOTH_CONTROLS = 24, 48  # bytes of SendControl
MESSAGE_BYTES, VECTOR_BYTES, POLL_BYTES = 64, 16, 8


def check() -> None:
    """Refuse machines on which the structures would be wrong."""
    if sys.byteorder != "little" or sys.maxsize < 1 << 62 or not sys.platform.startswith("linux"):
        raise ConfigError(f"platform: {sys.platform}, {sys.byteorder}-endian; live endpoints need 64-bit Linux")


@kernel
def monotonic(words: Words, epoch: int) -> int:
    """Return the time (ps) since `epoch` (s of CLOCK_MONOTONIC); `words` has room for two.

    Picoseconds since boot would exceed 63 bits after 106 days.
    """
    _read_clock(_CLOCK_MONOTONIC, words.ctypes.data)
    return (int(words[0]) - epoch) * PS_PER_S + int(words[1]) * PS_PER_NS


@kernel
def last_error(words: Words) -> int:
    """Return errno of the last call; `words` has room for one."""
    words[0] = 0
    copy(words.ctypes.data, _errno_address(), 4)
    return int(words[0])
