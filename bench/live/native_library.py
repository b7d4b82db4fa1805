"""How fast are programs of others on the native library, against `mrc perf` and against each other?

Debian's perftest, unmodified, both ends on loopback over four planes, in turns within one run: a machine that is busy
with other work slows all of them. Marks: 1 MiB writes at least 0.95 of `mrc perf`, 16 queue pairs at least 0.85 of one,
64 KiB sends (emulated) at least half of writes, a million 64-byte writes a second, posted one by one or in lists.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import openmrc

PLANES = ",".join(f"127.0.0.{plane}" for plane in range(1, 5))
MEGABYTE = 1 << 20


def free_port() -> str:
    """Return a TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def perftest(program: str, *options: str, column: int = 3) -> float:
    """Run a program of perftest at both ends; return a column of its last row: by default the average MiB/s."""
    settings = {**os.environ, "LD_PRELOAD": openmrc.get_library(), "MRC_PLANES": PLANES, "MRC_EMULATE": "send"}
    if "send" not in program:
        del settings["MRC_EMULATE"]
    command = [program, "-p", free_port(), *options]
    server = subprocess.Popen(command, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):  # the server may not listen yet
            client = subprocess.run(
                [*command, "127.0.0.1"], env=settings, capture_output=True, text=True, timeout=120, check=False
            )
            if client.returncode == 0:
                rows = [line.split() for line in client.stdout.splitlines() if re.match(r"^ ?\d+ +\d+ ", line)]
                return float(rows[-1][column])
            if "Couldn't connect" not in client.stdout + client.stderr:
                break
            time.sleep(0.1)
    finally:
        server.kill()
        server.wait()
    raise SystemExit(client.stdout + client.stderr)


def perf() -> float:
    """Return the MiB/s of `mrc perf` with writes of 1 MiB over four planes."""
    command = [
        sys.executable,
        "-m",
        "openmrc.cli.main",
        "perf",
        "--loopback",
        "--planes",
        "4",
        "-s",
        "1M",
        "-n",
        "2000",
    ]
    said = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=300, check=True).stdout
    found = re.search(r'"gbps": ?([\d.]+)', said)
    assert found is not None, said[:400]
    return float(found[1]) * 1e9 / 8 / MEGABYTE


def main() -> None:
    """Measure in turns and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--without-perf", action="store_true", help="leave out mrc perf, which may have to be compiled")
    chosen = parser.parse_args()
    measured: dict[str, list[float]] = {}
    what: dict[str, Callable[[], float]] = {
        "write 1 MiB": lambda: perftest("ib_write_bw", "-s", str(MEGABYTE), "-n", "2000"),
        "write 1 MiB, 16 queue pairs": lambda: perftest("ib_write_bw", "-s", str(MEGABYTE), "-n", "125", "-q", "16"),
        "write 64 KiB": lambda: perftest("ib_write_bw", "-s", "65536", "-n", "10000"),
        "send 64 KiB": lambda: perftest("ib_send_bw", "-s", "65536", "-n", "10000"),
    }
    small: dict[str, tuple[str, ...]] = {"write 64 B": (), "write 64 B, lists of 32": ("-l", "32")}
    for name, options in small.items():
        what[name] = partial(perftest, "ib_write_bw", "-s", "64", "-n", "400000", *options, column=4)
    if not chosen.without_perf:
        what["mrc perf 1 MiB"] = perf
    for _ in range(chosen.turns):
        for name, measure in what.items():
            measured.setdefault(name, []).append(measure())
    medians = {name: statistics.median(values) for name, values in measured.items()}
    for name, value in medians.items():
        print(f"{name}: {value:.2f} M/s" if name in small else f"{name}: {value:.0f} MiB/s")
    if not chosen.without_perf:
        print(f"ratio write / mrc perf {medians['write 1 MiB'] / medians['mrc perf 1 MiB']:.2f}")
    print(f"ratio 16 queue pairs / one {medians['write 1 MiB, 16 queue pairs'] / medians['write 1 MiB']:.2f}")
    print(f"ratio send / write {medians['send 64 KiB'] / medians['write 64 KiB']:.2f}")
    print(f"write latency 8 B: {perftest('ib_write_lat', '-s', '8', '-n', '2000', column=4):.1f} us typical")
    print(f"send latency 8 B: {perftest('ib_send_lat', '-s', '8', '-n', '2000', column=4):.1f} us typical")


if __name__ == "__main__":
    main()
