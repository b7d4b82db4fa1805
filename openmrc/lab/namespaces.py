"""Network namespaces of labs: their names, entering them, and the processes in them.

The namespaces of a lab are called `mrc.LAB.NODE`, so they can be found by name alone, also after a crash that left no
record. The namespace that this process started in is never changed.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from openmrc.errors import ConfigError, MrcError

PREFIX = "mrc"
NAMED = Path("/run/netns")
FILES = Path("/etc/netns")  # `ip netns exec` bind-mounts its content over /etc
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,23}")
_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL, _ETHTOOL_GLINK = 0x8946, 0x0A  # linux/sockios.h, linux/ethtool.h
_PATIENCE_FOR_PORTS = 10.0  # s
_PATIENCE = 2.0  # s between SIGTERM and SIGKILL
_TRIES = 500
_MEMORY_PAUSE = 0.002  # s
_FILES_A_LINE, _OTHER_FILES = 2, 32  # open files of a line that names two namespaces, and of iproute2 itself
_GENTLE = 19  # niceness
_NO_MEMORY = "Cannot allocate memory"
_FAILED = re.compile(r"Command failed -:(\d+)")  # iproute2 counts lines from 1
_libc = ctypes.CDLL(None, use_errno=True)


def check_lab_name(name: str) -> str:
    """Return the name if it is valid for a lab."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"lab name {name!r}: use 1 to 24 lower-case letters, digits, - and _, such as lab")
    return name


def namespace(lab: str, node: str) -> str:
    return f"{PREFIX}.{lab}.{node}"


def of_lab(lab: str) -> list[str]:
    return sorted(path.name for path in NAMED.glob(f"{PREFIX}.{lab}.*"))


def labs() -> list[str]:
    return sorted({path.name.split(".")[1] for path in NAMED.glob(f"{PREFIX}.*.*")})


def count() -> int:
    """Count the named namespaces of this machine."""
    return sum(1 for _ in NAMED.iterdir()) if NAMED.is_dir() else 0


def require_root() -> None:
    """Raise an error without the rights that namespaces need."""
    if os.geteuid() != 0:
        raise MrcError("a lab needs root to create network namespaces and BPF programs")
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise MrcError(f"a lab needs {program!r} of iproute2; `mrc doctor` shows how to install it")


@contextlib.contextmanager
def gently() -> Iterator[None]:
    """Run this thread, and the processes it starts, at low priority."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, _GENTLE)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
        os.sched_setscheduler(0, policy, parameter)


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """Move this thread into a namespace, and back at the end."""
    with _returning():
        try:
            with (NAMED / name).open("rb") as there:
                _check("setns", _libc.setns(there.fileno(), _CLONE_NEWNET))
        except FileNotFoundError:
            raise MrcError(f"there is no namespace {name}; `mrc lab list` shows all labs") from None
        yield


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Move this thread into a new namespace without a name, which is gone at the end, and back."""
    with _returning():
        _check("unshare", _libc.unshare(_CLONE_NEWNET))
        yield


@contextlib.contextmanager
def _returning() -> Iterator[None]:
    """Move this thread back at the end into the namespace that it is in now."""
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        try:
            yield
        finally:
            _check("setns", _libc.setns(home.fileno(), _CLONE_NEWNET))


def _check(call: str, done: int) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def batch(program: str, lines: Sequence[str], name: str | None = None, *, force: bool = False) -> str:
    """Run lines through `ip -batch` or `tc -batch`, inside a namespace or here; return the output.

    With `force`, failing lines are skipped, as when removing an incomplete lab.
    """
    command = [program, *(["-force"] if force else []), "-json", "-batch", "-"]
    printed = ""
    for _ in range(_TRIES):
        if not lines:
            break
        with inside(name) if name is not None else contextlib.nullcontext():
            done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
        printed += done.stdout
        if done.returncode == 0 or force:
            break
        failed = _FAILED.search(done.stderr)
        lines = lines[int(failed[1]) - 1 :] if failed else lines
        if _NO_MEMORY not in done.stderr or not failed:
            raise MrcError(f"{program} in {name or 'this namespace'}: {' '.join(done.stderr.split())} in `{lines[0]}`")
        # Routes with encapsulation allocate per-CPU memory without waiting; the kernel refills it in the background.
        time.sleep(_MEMORY_PAUSE)
    else:
        raise MrcError(f"{program} in {name or 'this namespace'}: out of memory at `{lines[0]}`")
    return printed


def link_batch(lines: Sequence[str]) -> None:
    """Run `ip` lines that name namespaces, in batches below the limit of open files.

    iproute2 opens a file for each namespace that a line names and keeps it open until the end of the batch.
    """
    most = _names_at_once()
    for at in range(0, len(lines), most):
        batch("ip", lines[at : at + most])


def _names_at_once() -> int:
    return max(1, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES) // _FILES_A_LINE)


def without_carrier(name: str, devices: Sequence[str]) -> list[str]:
    """Return the ports of a namespace that are down, or whose peer is."""
    with inside(name), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return [device for device in devices if not _has_link(asking, device)]


def _has_link(asking: socket.socket, device: str) -> bool:
    """Query the driver (linux/ethtool.h, ETHTOOL_GLINK); the output of `ip link` may be a second old."""
    answer = ctypes.create_string_buffer(struct.pack("=II", _ETHTOOL_GLINK, 0), 8)
    request = struct.pack("16sP16x", device.encode(), ctypes.addressof(answer))
    try:
        fcntl.ioctl(asking, _SIOCETHTOOL, request)
    except OSError:  # the device is gone
        return False
    return bool(struct.unpack("=II", answer.raw)[1])


def await_ports(name: str, devices: Sequence[str]) -> None:
    """Wait until ports that were brought up carry packets.

    The kernel detects a new carrier up to a second later, and drops packets until then.
    """
    deadline = time.monotonic() + _PATIENCE_FOR_PORTS
    while True:
        shown = json.loads(batch("ip", ["link show"], name) or "[]")
        waiting = [each["ifname"] for each in shown if each["ifname"] in devices and each["operstate"] != "UP"]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise MrcError(f"{name}: {', '.join(waiting)} did not come up within {_PATIENCE_FOR_PORTS:g} s")
        time.sleep(_MEMORY_PAUSE)


def processes_in(inodes: set[int]) -> list[int]:
    """Return the processes whose network namespace has one of these inodes."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}/ns/net").st_ino in inodes:
                    found.append(int(entry))
    return found


def _end_processes(inodes: set[int]) -> int:
    """End every process in these namespaces; return their number."""
    first = left = processes_in(inodes)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        deadline = time.monotonic() + _PATIENCE
        while left and time.monotonic() < deadline and (left := processes_in(inodes)):
            time.sleep(0.01)
    return len(first)


def remove(names: Sequence[str]) -> int:
    """Remove namespaces, with their links and files, and end every process in them; return how many there were."""
    most = _names_at_once()
    ended = sum(_remove_some(names[at : at + most]) for at in range(0, len(names), most))
    left = [name for name in names if (NAMED / name).exists()]
    if left:
        raise MrcError(f"could not remove {', '.join(left)}")
    return ended


def _remove_some(names: Sequence[str]) -> int:
    with contextlib.ExitStack() as held:
        inodes = set()
        for name in names:  # as long as a namespace is open, no other one gets its inode
            with contextlib.suppress(OSError):
                inodes.add(os.fstat(held.enter_context((NAMED / name).open("rb")).fileno()).st_ino)
        ended = _end_processes(inodes)
        batch("ip", [f"netns delete {name}" for name in names], force=True)
        for name in names:
            shutil.rmtree(FILES / name, ignore_errors=True)
        return ended + _end_processes(inodes)  # those that entered before the name was gone
