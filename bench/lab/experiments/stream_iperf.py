"""A test stream of iperf3: a second TCP measurement, by an independent program.

iperf3 reports the bytes of each tenth of a second, so pieces are recorded as if evenly spaced: gaps shorter than two
intervals are invisible, and only the number of bytes is checked.
"""

from __future__ import annotations

import math
import re
import subprocess
import time

from bench.lab.experiments.pieces import PIECE, Log
from openmrc.errors import MrcError
from openmrc.units import NS_PER_S

KIND = "iperf3"
_EVERY = 0.1  # s; its shortest interval
_INTERVAL = re.compile(r"\]\s+([\d.]+)-([\d.]+)\s+sec\s+([\d.]+) ([KMG]?)Bytes")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}  # required for each line, whatever units are configured
_PATIENCE = 120.0  # s


def receive(port: int) -> Log:
    """Serve one stream to its end."""
    log, total = Log(KIND), 0.0
    command = ["iperf3", "-s", "-1", "-p", str(port), "-i", str(_EVERY), "--forceflush"]
    with _started(command) as process:
        for line in process.stdout or ():
            found = _INTERVAL.search(line)
            if found is None or float(found[2]) - float(found[1]) > 2 * _EVERY:
                continue  # not an interval: the last line is the total
            total += float(found[3]) * _UNITS[found[4]]
            _note(log, int(total) // PIECE, time.monotonic_ns())
        if process.wait(_PATIENCE) != 0:
            raise MrcError(f"iperf3 -s ended with exit code {process.returncode}")
    log.sent = len(log.times)
    return log


def _note(log: Log, until: int, now: int) -> None:
    """Record the pieces completed by an interval that ends now."""
    count = until - len(log.times)
    began = now - int(_EVERY * NS_PER_S)
    log.times += [began + (number + 1) * (now - began) // count for number in range(count)]


def send(address: str, port: int, seconds: float) -> None:
    """Send as fast as the network allows for a time."""
    command = ["iperf3", "-c", address, "-p", str(port), "-t", str(max(1, math.ceil(seconds)))]  # whole seconds only
    with _started(command) as process:
        output = process.communicate(timeout=seconds + _PATIENCE)[0]
    if process.returncode != 0:
        raise MrcError(f"iperf3 -c: {' '.join(output.split())[-200:]}")


def _started(command: list[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        raise MrcError("iperf3 is not installed; `mrc doctor` shows how to install it") from None
