"""How soon does traffic leave a plane whose carrier is gone? `sudo python -m bench.live.carrier [PULLS]`.

Two endpoints of one process in a network namespace of this bench; one of two planes has the address of a veth
interface. While writes flow at full load, the other end of the veth is set down, and the packets sent on that plane are
counted until the carrier is back. Printed: the time to the last packet sent on the plane, from the kernel's first
announcement and from the beginning of the system call that takes the carrier, in which the kernel waits as well. The
resolution is a sampling step, about 0.1 ms; sampling also disturbs the endpoints. The threads that write, pull and
sample have a real-time priority, and the endpoints' own threads have not: a sampler that waits for a processor would
take its own delay for that of the endpoints. Mark: p99 of 1 ms.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from openmrc.live.host import netlink

if TYPE_CHECKING:
    from openmrc.verbs import Connection, Context

MARK_MS = 1.0
OUT_SECONDS, REST_SECONDS, LIMIT_SECONDS = 0.05, 0.3, 5.0
WRITE = 256 << 10
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1  # netdevice(7)
_LINES = (
    "link set lo up",
    "link add va type veth peer name vx",
    "link set va up",
    "link set vx up",
    "address add 10.0.0.1/24 dev va",
)


def set_link(name: str, up: bool) -> None:
    """Set an interface up or down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        found = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sh14x", name.encode(), 0))
        flags = struct.unpack("16sh14x", found)[1]
        wanted = flags | _IFF_UP if up else flags & ~_IFF_UP
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", name.encode(), wanted))


def main() -> int:
    if os.environ.get("OPENMRC_BENCH_NAMESPACE") is None:
        environment = {**os.environ, "OPENMRC_BENCH_NAMESPACE": "own"}
        command = ["unshare", "--net", sys.executable, "-m", "bench.live.carrier", *sys.argv[1:]]
        return subprocess.run(command, env=environment, check=False).returncode
    for line in _LINES:
        subprocess.run(["ip", *line.split()], check=True)
    left = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    announced, called = np.array(left).T
    print(f"{len(left)} pulls; time to the last packet on the plane, ms:")
    for name, values in (("announcement", announced), ("system call", called)):
        p50, p99 = np.percentile(values, (50, 99))
        print(f"  from the {name:<12}  p50 {p50:.2f}  p99 {p99:.2f}  most {values.max():.2f}")
    p99 = np.percentile(announced, 99)
    print(f"ratio of p99 to {MARK_MS:g} ms: {p99 / MARK_MS:.2f} (mark: 1)")
    return 0


def measure(pulls: int) -> list[tuple[float, float]]:
    """Return the milliseconds to the last packet sent on the plane: from the announcement, and from the call."""
    from openmrc.verbs import Context, Listener, connect

    with Context(["10.0.0.1", "127.77.0.1"]) as first, Context(["127.77.1.2", "127.77.0.2"]) as second:
        region, target = (each.alloc_pd().reg_mr(bytearray(WRITE)) for each in (first, second))
        with Listener(second, "127.0.0.1", 0) as listener:
            accepted: list[Connection] = []
            serving = threading.Thread(target=lambda: accepted.append(listener.accept(regions=[target], timeout=60)))
            serving.start()
            with connect(first, "127.0.0.1", listener.port, regions=[region], timeout=60) as peer:
                serving.join()
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # and that of threads begun later
                stop = threading.Event()

                def stream() -> None:
                    while not stop.is_set():
                        peer.write(region, peer.remote.regions[0], timeout=30)

                writer = threading.Thread(target=stream)
                writer.start()
                try:
                    return [_pull(first) for _ in range(pulls)]
                finally:
                    stop.set()
                    writer.join()


def _pull(context: Context) -> tuple[float, float]:
    time.sleep(REST_SECONDS)
    before, deadline = _sent(context), time.monotonic() + LIMIT_SECONDS
    while _sent(context) == before:  # a shared machine may stand still for 10 ms
        assert time.monotonic() < deadline, "no traffic on the plane before the pull"
        time.sleep(0.001)
    with netlink.open_monitor() as monitor:
        pulling = threading.Thread(target=set_link, args=("vx", False))
        pulled = last = now = time.monotonic_ns()
        announced, count = 0, _sent(context)
        pulling.start()
        while not announced or now < announced + OUT_SECONDS * 1e9:
            time.sleep(0.00005)
            sent, now = _sent(context), time.monotonic_ns()
            assert announced or now < pulled + LIMIT_SECONDS * 1e9, "the kernel announced no lost carrier"
            if not announced and select.select([monitor], [], [], 0)[0]:
                announced = now
            if sent != count:
                last, count = now, sent
        pulling.join()
    set_link("vx", up=True)
    return max(last - announced, 0) / 1e6, (last - pulled) / 1e6


def _sent(context: Context) -> int:
    return int(context.plane_counters()[0].sent_packets)


if __name__ == "__main__":
    sys.exit(main())
