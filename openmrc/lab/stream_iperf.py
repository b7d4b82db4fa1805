"""A test stream that iperf3 sends and receives: a second opinion on TCP, from a program that is not ours.

It tells the bytes of each tenth of a second, so pieces are noted as if each interval's had come evenly: gaps shorter
than two intervals are not seen, and what was in the bytes is not looked at, only how many they were.
"""

from __future__ import annotations

import math
import re
import subprocess
import time

from openmrc.errors import MrcError
from openmrc.lab.pieces import PIECE, Log

KIND = "iperf3"
_EVERY = 0.1  # s; the shortest it offers
_INTERVAL = re.compile(r"\]\s+([\d.]+)-([\d.]+)\s+sec\s+([\d.]+) ([KMG]?)Bytes")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}  # chosen line by line, whatever rates are asked for in
_NS = 1_000_000_000
_PATIENCE = 120.0  # s


def receive(port: int) -> Log:
    """Serve one stream to its end."""
    log, total = Log(KIND), 0.0
    command = ["iperf3", "-s", "-1", "-p", str(port), "-i", str(_EVERY), "--forceflush"]
    with _started(command) as process:
        for line in process.stdout or ():
            found = _INTERVAL.search(line)
            if found is None or float(found[2]) - float(found[1]) > 2 * _EVERY:
                continue  # no interval; the last line sums up
            total += float(found[3]) * _UNITS[found[4]]
            _note(log, int(total) // PIECE, time.monotonic_ns())
        if process.wait(_PATIENCE) != 0:
            raise MrcError(f"iperf3 -s ended with exit code {process.returncode}")
    log.sent = len(log.times)
    return log


def _note(log: Log, until: int, now: int) -> None:
    """Note the pieces that an interval which ends now has completed."""
    count = until - len(log.times)
    began = now - int(_EVERY * _NS)
    log.times += [began + (number + 1) * (now - began) // count for number in range(count)]


def send(address: str, port: int, seconds: float) -> None:
    """Send for a time as fast as the network takes it."""
    command = ["iperf3", "-c", address, "-p", str(port), "-t", str(max(1, math.ceil(seconds)))]  # whole seconds only
    with _started(command) as process:
        output = process.communicate(timeout=seconds + _PATIENCE)[0]
    if process.returncode != 0:
        raise MrcError(f"iperf3 -c: {' '.join(output.split())[-200:]}")


def _started(command: list[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        raise MrcError("iperf3 is not installed; `mrc doctor` says more") from None
