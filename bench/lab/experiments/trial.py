"""One stream between two NICs of a lab while cables are pulled; used by every comparison, benchmark and test here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.lab.experiments import pieces, priorities
from bench.lab.experiments.pieces import Arrivals
from harness import labs
from openmrc.errors import MrcError
from openmrc.fabric.addressing.usid import identity
from openmrc.lab.faults import Breaker, ExecutedStep
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import batch, namespace

PORT = 7010
_OPENING = 180.0  # s; the engine may have to be compiled first
_CLOSING = 120.0
_LOOKS = 0.02  # s between checks


@dataclass(frozen=True)
class Trial:
    """The result; times in ns of the monotonic clock."""

    arrivals: Arrivals
    times: npt.NDArray[np.int64]
    began: int
    steps: list[ExecutedStep]

    @property
    def is_whole(self) -> bool:
        """Whether every piece arrived once, in its place, undamaged."""
        return self.arrivals.wrong == 0 and self.arrivals.sent == len(self.times)

    def gbps(self, begin: int, end: int) -> float:
        """Return the rate of arrivals between two times."""
        count = int(np.count_nonzero((self.times >= begin) & (self.times < end)))
        return count * self.arrivals.piece_bytes * 8 / max(1, end - begin)


def stream(
    breaker: Breaker, kind: str, source: str, destination: str, seconds: float, during: Callable[[], list[ExecutedStep]]
) -> Trial:
    """Run one stream and call `during` once it flows; return when all has arrived."""
    lab = breaker.lab
    address = _address(lab, kind, destination)
    if kind == "mptcp":
        allow_subflows(lab, source, destination)
    program = [sys.executable, "-m", "bench.lab.experiments.stream"]
    with tempfile.TemporaryDirectory(prefix="openmrc-lab-") as folder, priorities.network_first():
        out = Path(folder, "arrivals.json")
        receiver = labs.start(
            lab.name, destination, [*program, "receive", kind, address, str(PORT), str(out)], stderr=subprocess.PIPE
        )
        sender: subprocess.Popen[bytes] | None = None
        try:
            _await_listener(lab, destination, receiver)
            sender = labs.start(
                lab.name, source, [*program, "send", kind, address, str(PORT), str(seconds)], stderr=subprocess.PIPE
            )
            began = _await_flow(lab, source, sender)
            steps = during()
            _finish(sender)
            _finish(receiver)
            return _read(out, began, steps)
        finally:
            for started in (sender, receiver):
                if started is not None and started.poll() is None:
                    started.kill()
                    started.wait()


def _read(out: Path, began: int, steps: list[ExecutedStep]) -> Trial:
    arrivals = pieces.read(out)
    return Trial(arrivals, np.array(arrivals.nanoseconds, np.int64), began, steps)


def _address(lab: Lab, kind: str, destination: str) -> str:
    return destination if kind == "mrc" else identity(0, lab.topology.node_named(destination))


def allow_subflows(lab: Lab, source: str, destination: str) -> None:
    """Let MPTCP use every plane: the receiver announces its address on each, the sender may connect to all of them."""
    most = min(8, len(lab.plan.planes))
    nic = lab.topology.node_named(destination)
    for node in (source, destination):
        lines = ["mptcp endpoint flush", f"mptcp limits set subflows {most} add_addr_accepted {most}"]
        if node == destination:
            planes = range(1, len(lab.plan.planes))
            lines += [f"mptcp endpoint add {identity(plane, nic)} dev lo signal" for plane in planes]
        batch("ip", lines, namespace(lab.name, node))


def _await_listener(lab: Lab, node: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process listens on the port, by the namespace's own tables (state 0A)."""
    wanted = f":{PORT:04X} "

    def listens() -> bool:
        lines = _told(lab, node, "/proc/net/tcp", "/proc/net/tcp6")
        return any(wanted in line and " 0A " in line for line in lines)

    _await(process, listens)


def _await_flow(lab: Lab, node: str, process: subprocess.Popen[bytes]) -> int:
    """Wait until the sender's ports have sent a hundred pieces more than before; return the time."""
    before = _sent(lab, node)
    _await(process, lambda: _sent(lab, node) - before > 100 * pieces.PIECE)
    return time.monotonic_ns()


def _sent(lab: Lab, node: str) -> int:
    """Return the bytes sent by a NIC's ports."""
    rows = [line.replace(":", " ").split() for line in _told(lab, node, "/proc/net/dev")[2:]]
    devices = {f"p{plane}" for plane in range(len(lab.plan.planes))}
    return sum(int(row[9]) for row in rows if row[0] in devices)


def _told(lab: Lab, node: str, *files: str) -> list[str]:
    command = ["ip", "netns", "exec", namespace(lab.name, node), "cat", *files]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def _await(process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _OPENING
    while not is_so():
        if process.poll() is not None:
            raise MrcError(f"a stream ended before it began: {_last_words(process)}")
        if time.monotonic() > deadline:
            raise MrcError(f"a stream did not begin within {_OPENING:g} s")
        time.sleep(_LOOKS)


def _finish(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_CLOSING)
    except subprocess.TimeoutExpired:
        raise MrcError(f"a stream did not end within {_CLOSING:g} s after it should") from None
    if process.returncode != 0:
        raise MrcError(f"a stream failed: {_last_words(process)}")


def _last_words(process: subprocess.Popen[bytes]) -> str:
    said = process.stderr.read().decode(errors="replace") if process.stderr else ""
    return " ".join(said.split())[-300:] or f"exit code {process.returncode}"
