"""Read and write the maps of a loaded BPF program through the bpf(2) system call.

`tc` loads a program without keeping references to its maps. The program's id, which `tc` shows, leads to the ids of its
maps, and those to their values. Command numbers and layouts: linux/bpf.h.
"""

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

_CALL = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "s390x": 351, "riscv64": 280}
_LOOKUP, _UPDATE, _PIN, _PROGRAM_BY_ID, _MAP_BY_ID, _INFO = 1, 2, 6, 13, 14, 15
_PROGRAM_INFO, _MAP_INFO = 232, 88  # bytes; later fields are not needed
_PROGRAM_MAPS_AT, _MAP_NAME_AT, _NAME = 52, 24, 16
_MOST_MAPS = 16
_ANY = 0

_libc = ctypes.CDLL(None, use_errno=True)


def maps_of(program: int) -> dict[str, int]:
    """Return the ids of a program's maps by name."""
    with _opened(_PROGRAM_BY_ID, program) as descriptor:
        numbers = (ctypes.c_uint32 * _MOST_MAPS)()
        asked = bytearray(_PROGRAM_INFO)
        struct.pack_into("=IQ", asked, _PROGRAM_MAPS_AT, _MOST_MAPS, ctypes.addressof(numbers))
        info = _info(descriptor, asked)
        count = struct.unpack_from("=I", info, _PROGRAM_MAPS_AT)[0]
        return {_name_of(numbers[index]): int(numbers[index]) for index in range(min(count, _MOST_MAPS))}


@contextlib.contextmanager
def pinned(program: int, path: Path) -> Iterator[None]:
    """Give a program a path in a BPF file system for a block; OSError where the path is not in one."""
    with _opened(_PROGRAM_BY_ID, program) as descriptor:
        text = ctypes.create_string_buffer(os.fsencode(path))
        path.unlink(missing_ok=True)  # of a process that was killed
        _bpf(_PIN, struct.pack("=QI", ctypes.addressof(text), descriptor))
    try:
        yield
    finally:
        path.unlink()


def read(number: int, size: int, entry: int = 0) -> bytes:
    """Return a value of an array map."""
    value = (ctypes.c_ubyte * size)()
    with _opened(_MAP_BY_ID, number) as descriptor:
        _access(_LOOKUP, descriptor, entry, ctypes.addressof(value))
    return bytes(value)


def write(number: int, value: bytes, entry: int = 0) -> None:
    """Replace a value of an array map."""
    held = (ctypes.c_ubyte * len(value)).from_buffer_copy(value)
    with _opened(_MAP_BY_ID, number) as descriptor:
        _access(_UPDATE, descriptor, entry, ctypes.addressof(held))


def _access(command: int, descriptor: int, entry: int, value: int) -> None:
    key = ctypes.c_uint32(entry)
    _bpf(command, struct.pack("=I4xQQQ", descriptor, ctypes.addressof(key), value, _ANY))


@contextlib.contextmanager
def _opened(command: int, number: int) -> Iterator[int]:
    descriptor = _bpf(command, struct.pack("=III", number, 0, 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _name_of(number: int) -> str:
    with _opened(_MAP_BY_ID, number) as descriptor:
        info = _info(descriptor, bytearray(_MAP_INFO))
    return bytes(info[_MAP_NAME_AT : _MAP_NAME_AT + _NAME]).split(b"\0")[0].decode()


def _info(descriptor: int, asked: bytearray) -> bytearray:
    held = (ctypes.c_ubyte * len(asked)).from_buffer(asked)
    _bpf(_INFO, struct.pack("=IIQ", descriptor, len(asked), ctypes.addressof(held)))
    return asked


def _bpf(command: int, attributes: bytes) -> int:
    """Make the system call; OSError gives the reason of a failure."""
    held = ctypes.create_string_buffer(attributes, 128)
    done = int(_libc.syscall(_CALL[platform.machine()], command, held, 128))
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return done
