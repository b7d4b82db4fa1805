"""Memory of this process and of its host, and a refusal to take more than is left: Linux would kill it silently."""

import contextlib
import ctypes
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_UNKNOWN = 1 << 60  # bytes, where the kernel reports nothing
_LIMITS = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))  # cgroup v2, v1


def peak_bytes() -> int:
    """Return the largest resident size so far."""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024  # Linux counts kilobytes, macOS bytes


def available_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process may still write: of the machine, and of its control groups."""
    left = _of_machine(proc / "meminfo")
    for group in _own_groups(proc / "self" / "cgroup", cgroups):
        left = min(left, _of_group(group))
    return left


def require(tables: Iterable[Any], what: str) -> None:
    """Raise MemoryError if tables, allocated and not yet written, exceed the memory that is left."""
    needed, available = sum(int(np.asarray(each).nbytes) for each in tables), available_bytes()
    if needed > available:
        raise MemoryError(
            f"at least {needed / 1e9:.1f} GB are needed for {what}, {available / 1e9:.1f} GB are available"
        )


def give_back() -> None:
    """Return freed memory to the system: glibc keeps what freed arrays of up to 32 MB took."""
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _of_machine(meminfo: Path) -> int:
    """Return MemAvailable and SwapFree together (proc_meminfo(5))."""
    counts = _numbers(meminfo)
    return (counts["MemAvailable"] + counts.get("SwapFree", 0)) * 1024 if "MemAvailable" in counts else _UNKNOWN


def _own_groups(membership: Path, cgroups: Path) -> Iterator[Path]:
    """Yield the folders of the control groups that count the memory of this process, and of those around them."""
    try:
        lines = membership.read_text("ascii").splitlines()
    except OSError:
        return
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):  # version 2, version 1
            top = cgroups / controllers
            folder = top / path.lstrip("/")
            yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top))


def _of_group(folder: Path) -> int:
    """Return what is left below the limit of a control group; unused pages of files are given back."""
    for limit, usage in _LIMITS:
        try:
            most = (folder / limit).read_text("ascii").strip()
            used = int((folder / usage).read_text("ascii"))
        except OSError:
            continue  # of the other version, or the root group
        counts = _numbers(folder / "memory.stat")
        of_files = counts.get("total_inactive_file", counts.get("inactive_file", 0))
        return _UNKNOWN if most == "max" else max(0, int(most) - used + of_files)
    return _UNKNOWN


def _numbers(file: Path) -> dict[str, int]:
    """Return the numbers of a file of lines such as `name 5` or `Name: 5 kB`."""
    try:
        lines = [line.split() for line in file.read_text("ascii").splitlines()]
    except OSError:
        return {}
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
