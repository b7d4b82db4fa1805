"""Segments: anonymous shared memory that one process of this host writes and one other reads.

A memfd whose size is sealed, passed by its descriptor: neither end can make the other fault (docs/collectives.md), and
it outlives its writer.
"""

import ctypes
import fcntl
import mmap
import os
import weakref

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import MrcError

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_FAILED = ctypes.c_void_p(-1).value
Bytes = NDArray[np.uint8]
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def _map(descriptor: int, size: int, protection: int) -> Bytes:
    """Return an array over a mapping, which is given back with the array; a Python `mmap` would keep a descriptor."""
    address = _libc.mmap(None, size, protection, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False  # threads may still use it then
    array: Bytes = np.frombuffer(memoryview(memory), np.uint8)
    array.flags.writeable = bool(protection & mmap.PROT_WRITE)
    return array


class SegmentError(MrcError):
    """A segment cannot be used: it is not a sealed memfd of the expected size and owner."""


class OutgoingSegment:
    def __init__(self, size: int) -> None:
        """Create `size` bytes of zeros; SegmentError if the kernel refuses."""
        try:
            self.descriptor = os.memfd_create("openmrc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise SegmentError(f"shared memory: {error}") from error
        try:
            os.ftruncate(self.descriptor, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self.bytes: Bytes = _map(self.descriptor, size, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            self.close()
            raise SegmentError(f"shared memory: {error}") from error

    def close(self) -> None:
        """Close the descriptor; the mapping stays until its arrays are deleted."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def map_incoming(descriptor: int, size: int) -> Bytes:
    """Map a segment that another process writes, and close its descriptor; SegmentError if it is not as expected."""
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise SegmentError(f"shared memory: made by user {status.st_uid}, this process runs as {os.geteuid()}")
        if status.st_size != size:
            raise SegmentError(f"shared memory: {status.st_size} bytes, expected {size}")
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise SegmentError("shared memory: its size is not sealed, so its maker could truncate it")
        return _map(descriptor, size, mmap.PROT_READ)
    except OSError as error:  # not a memfd
        raise SegmentError(f"shared memory: {error}") from error
    finally:
        os.close(descriptor)
