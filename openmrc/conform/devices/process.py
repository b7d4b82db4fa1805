"""A device behind an adapter: a command that speaks the contract over its stdin and stdout."""

import contextlib
import os
import select
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from openmrc.conform.devices.contract import (
    UNSUPPORTED_EXIT,
    Description,
    DeviceEvent,
    DeviceGoneError,
    DeviceSilentError,
    DeviceUnsupportedError,
    ProfileOrder,
    Wanted,
    WriteOrder,
)
from openmrc.errors import ConfigError
from openmrc.live.host.addresses import PlaneAddress

OPEN_SECONDS = 300.0  # until a device says that it is ready: an endpoint may compile itself first
ANSWER_SECONDS = 20.0
STOP_SECONDS = 5.0
LONGEST_WAIT = 2.0  # s for which threads without a processor are waited for
_LOOK = 0.005  # s
_CHUNK = 1 << 16


class ProcessDevice:
    """Starts the adapter when it is first needed and again whenever it has ended."""

    def __init__(self, command: Sequence[str], patience: float = ANSWER_SECONDS) -> None:
        """Remember the command and how long (s) its answers may take; nothing is started yet."""
        self._command = list(command)
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting = b""
        self._events: list[DeviceEvent] = []
        self._has_answered = False  # to `open`, this process or one before

    @property
    def pid(self) -> int | None:
        """The adapter's process, if it runs."""
        return self._process.pid if self._process is not None else None

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when the adapter has said something."""
        if self._process is None or self._process.stdout is None:
            return None
        return self._process.stdout.fileno()

    def open(self, wanted: Wanted) -> Description:
        """Have the adapter make a queue pair."""
        self._events = []
        if self._process is None or self._process.poll() is not None:
            self._start()
        answer = self._ask({"do": "open", "wanted": wanted}, max(OPEN_SECONDS, self._patience))
        self._events = []
        return self._described(answer)

    def reset(self) -> Description:
        return self._described(self._ask({"do": "reset"}))

    def _described(self, answer: dict[str, Any]) -> Description:
        described: Description = self._converted(answer, Description)
        try:
            for text in described.planes:
                PlaneAddress.parse(text)
        except ConfigError as error:
            raise DeviceGoneError(f"the adapter said something else than addresses: {error}") from error
        return described

    def connect(self, peer: Description) -> None:
        self._ask({"do": "connect", "peer": peer}, max(OPEN_SECONDS, self._patience))

    def write(self, order: WriteOrder) -> None:
        self._ask({"do": "write", "order": order})

    def memory(self, offset: int, length: int, pair: int = 0) -> bytes:
        answer = self._ask({"do": "memory", "offset": offset, "length": length} | ({"pair": pair} if pair else {}))
        try:
            return bytes.fromhex(answer["data"])
        except (KeyError, TypeError, ValueError):
            raise DeviceGoneError("its answer to `memory` holds no hexadecimal digits") from None

    def set_port(self, plane: int, up: bool) -> None:
        self._ask({"do": "port", "plane": plane, "up": up})

    def profile(self, order: ProfileOrder) -> str:
        """Have it make an EV profile; return the error by which it refuses."""
        return str(self._ask({"do": "profile", "order": order}).get("refused", ""))

    def events(self) -> list[DeviceEvent]:
        self._read(0.0)
        taken, self._events = self._events, []
        return taken

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._ask({"do": "close"})

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):  # what an adapter that has ended did not read
                process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _start(self) -> None:
        self.stop()
        self._waiting = b""
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise DeviceGoneError(f"{self._command[0]}: {error.strerror}") from error

    def _ask(self, request: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
        process, seconds = self._process, self._patience if seconds is None else seconds
        if process is None or process.stdin is None:
            raise DeviceGoneError("the adapter does not run")
        try:
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
        except OSError:
            self._on_end()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            answer = self._read(left, wants_answer=True)
            if answer is not None:
                self._has_answered = True
                if "unsupported" in answer:
                    raise DeviceUnsupportedError(str(answer["unsupported"]))
                return answer
        self.stop()  # what it says later would be taken for the answer to another request
        raise DeviceSilentError(f"no answer to {request['do']!r} within {seconds:g} s")

    def _read(self, seconds: float, wants_answer: bool = False) -> dict[str, Any] | None:
        """Read what the adapter has said; keep events, return an answer."""
        descriptor = self.fileno()
        if descriptor is None:
            return None
        if b"\n" not in self._waiting and select.select([descriptor], [], [], seconds)[0]:
            part = os.read(descriptor, _CHUNK)
            if not part:
                self._on_end()
            self._waiting += part
        while b"\n" in self._waiting:
            line, _, self._waiting = self._waiting.partition(b"\n")
            said = self._decoded(line)
            if "event" in said:
                self._events.append(self._converted(said, DeviceEvent))
            elif wants_answer:
                return said
        return None

    def _decoded(self, line: bytes) -> dict[str, Any]:
        try:
            said = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise DeviceGoneError(f"the adapter said {line[:60]!r}: {error}") from error
        if not isinstance(said, dict):
            raise DeviceGoneError(f"the adapter said {line[:60]!r}, not an object")
        return said

    def _converted(self, said: dict[str, Any], kind: Any) -> Any:
        try:
            return msgspec.convert(said, kind)
        except msgspec.ValidationError as error:
            raise DeviceGoneError(f"the adapter said something else than {kind.__name__}: {error}") from error

    def _on_end(self) -> None:
        if self._process is None:
            return
        code = self._process.wait(STOP_SECONDS)
        if code == UNSUPPORTED_EXIT and not self._has_answered:
            command = shlex.join(self._command)
            raise ConfigError(f"the adapter ended with exit code 127 before it answered `open`; was {command!r} found?")
        if code == UNSUPPORTED_EXIT:
            raise DeviceUnsupportedError("the adapter does not support it (exit code 127)")
        raise DeviceGoneError(f"the adapter ended with exit code {code}")


class RunDelays:
    """Adds up the run delays of this process and of the adapters, from when each was first seen.

    How long the host kept tester and devices waiting for a processor makes what is missing or late inconclusive.
    """

    def __init__(self, devices: Sequence[ProcessDevice]) -> None:
        self._devices = devices
        self._seen: dict[int, tuple[int, int]] = {}  # process -> when first seen, and now (ns)

    def total(self) -> int:
        """Return how long (ns) they were ready to run and had no processor.

        The kernel counts a wait when it is over, so those that wait now are waited for.
        """
        devices = [device.pid for device in self._devices if device.pid is not None]
        _let_run(devices)
        for pid in [os.getpid(), *devices]:
            delay = run_delay(pid)
            first, _ = self._seen.get(pid, (delay, delay))
            self._seen[pid] = first, max(delay, first)
        return sum(now - first for first, now in self._seen.values())


def _let_run(pids: Sequence[int]) -> None:
    """Wait until each thread that is ready to run has run, at most `LONGEST_WAIT`."""
    waiting = {each: found for pid in pids for each in _tasks(pid) if (found := _ready(each)) is not None}
    deadline = time.monotonic() + LONGEST_WAIT
    while waiting and time.monotonic() < deadline:
        time.sleep(_LOOK)
        waiting = {each: found for each, found in waiting.items() if _ready(each) == found}


def _tasks(pid: int) -> Iterator[Path]:
    return Path(f"/proc/{pid}/task").glob("*")


def _ready(task: Path) -> str | None:
    """Return how long and how often a thread that is ready to run has run; None if it sleeps or has ended."""
    try:
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        return (task / "schedstat").read_text() if state == "R" else None
    except OSError:
        return None


def run_delay(pid: int) -> int:
    """Return how long (ns) the threads of a process were ready to run and had no processor."""
    total = 0
    for task in _tasks(pid):
        try:
            total += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # the thread has ended, or the kernel does not count
    return total
