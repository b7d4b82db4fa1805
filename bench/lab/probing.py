"""Are cut and lossy links of a lab named by real SRv6 probes? `sudo python -m bench.lab.probing [INJECTIONS]`.

One process opens a socket in the namespace of each NIC and plane and sends the whole plan (`openmrc.probing`) round by
round: loops and one-way probes as UDP datagrams to their carriers, forwarded by the kernel's SRv6. A round ends when
every probe has returned, or `WAIT_S` after the last was sent. The localiser sees counts of the last `ROUNDS` rounds.

Injections take turns: a cable pulled (no carrier), one direction that loses all, and one that loses a tenth; places are
random. Between two, the lab is whole and rounds without a fault must name nothing.

named    rightly named parts; time from the injection (its call returned) to the verdict, median, p90 and largest
wrong    verdicts about other parts; `quiet` counts verdicts in rounds without a fault
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import sys
import time
from pathlib import Path

import numpy as np

from openmrc.faults import Schedule
from openmrc.lab import lifetime
from openmrc.lab.faults import Breaker
from openmrc.lab.namespaces import inside, namespace
from openmrc.probing.elements import PlaneParts
from openmrc.probing.localise import Localiser
from openmrc.probing.probe_plan import ProbeSet, plan_fabric, probe_path

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab.yaml"
NAME, PORT = "bench-probing", 7011
WAIT_S = 0.005
ROUNDS, LIMIT_S, QUIET_ROUNDS = 40, 3.0, 5
CHANCE = 1e-4  # of a probe to be lost or late on a shared machine
CONTENT = struct.Struct("!HIQ")  # plane, row, round
NO_CHECK_TX, NO_CHECK_RX = 101, 102


class LabPlane:
    """A plane's probes, with the sockets that send them, and the counts of the last rounds."""

    def __init__(self, breaker: Breaker, probes: ProbeSet) -> None:
        plan, plane = breaker.lab.plan, probes.shape.plane
        self.probes, self.parts = probes, PlaneParts(plan.topology, probes.shape)
        self.localiser = Localiser(self.parts, probes.links, np.full(len(probes), CHANCE))
        nics, name = range(probes.shape.nics), plan.topology.name
        self.sockets = [_opened(name(nic), plan.nic_address(plane, nic)) for nic in nics]
        self.to = [probe_path(plan, probes, row).address for row in range(len(probes))]
        self.rounds: list[np.ndarray] = []  # whether each probe was lost

    def send(self, number: int) -> None:
        for row, (nic, address) in enumerate(zip(self.probes.source.tolist(), self.to, strict=True)):
            with contextlib.suppress(OSError):  # a NIC whose cable is pulled has no route: the probe counts as lost
                self.sockets[nic].sendto(CONTENT.pack(self.probes.shape.plane, row, number), (address, PORT))

    def named(self) -> list[str]:
        recent = np.array(self.rounds[-ROUNDS:])
        found = []
        for last in (1, 3, 10, ROUNDS):
            lost = recent[-last:].sum(axis=0).astype(np.int64)
            for each in self.localiser.explain(np.full(len(lost), float(min(last, len(recent)))), lost):
                found.append(self.parts.name(each.part))
        return list(dict.fromkeys(found))


def _opened(host: str, address: str) -> socket.socket:
    with inside(namespace(NAME, host)):
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_UDP, NO_CHECK_TX, 1)
    made.setsockopt(socket.SOL_UDP, NO_CHECK_RX, 1)
    made.bind((address, PORT))
    made.setblocking(False)
    return made


class Prober:
    """All planes of the lab, round by round."""

    def __init__(self, breaker: Breaker) -> None:
        self.planes = [LabPlane(breaker, probes) for probes in plan_fabric(breaker.lab.plan.topology)]
        self.poll = select.epoll()
        self.by_fd = {sock.fileno(): sock for plane in self.planes for sock in plane.sockets}
        for descriptor in self.by_fd:
            self.poll.register(descriptor, select.EPOLLIN)
        self.number = 0

    def round(self) -> list[str]:
        """Send every probe once, wait, and return the parts that are named now."""
        self.number += 1
        lost = [np.ones(len(plane.probes), dtype=bool) for plane in self.planes]
        left = sum(map(len, lost))
        for plane in self.planes:
            plane.send(self.number)
            left -= self._take(lost)
        end = time.monotonic() + WAIT_S
        while left and time.monotonic() < end:
            left -= self._take(lost, 0.001)
        for plane, each in zip(self.planes, lost, strict=True):
            plane.rounds.append(each)
        return [name for plane in self.planes for name in plane.named()]

    def _take(self, lost: list[np.ndarray], wait: float = 0.0) -> int:
        count = 0
        for descriptor, _ in self.poll.poll(wait):
            while True:
                try:
                    plane, row, number = CONTENT.unpack(self.by_fd[descriptor].recv(64))
                except BlockingIOError:
                    break
                if number == self.number and lost[plane][row]:
                    lost[plane][row] = False
                    count += 1
        return count

    def forget(self) -> None:
        for plane in self.planes:
            plane.rounds.clear()


def injection(prober: Prober, turn: int, draw: random.Random) -> tuple[str, str]:
    """Return a part and the words that break it."""
    parts = draw.choice(prober.planes).parts
    link = draw.randrange(parts.links)
    if turn % 3 == 0:
        name = parts.name(parts.links + int(parts.cable_of[link]))
        return name, f"down: {name}"
    name = parts.name(link)
    return name, f"loss: {'100%' if turn % 3 == 1 else '10%'}, on: {name}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    draw = random.Random(27)
    kinds = ("cable pulled", "direction 100 %", "direction 10 %")
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    wrong, quiet, took = [], [], []
    with lifetime.held(FABRIC, NAME):
        breaker = Breaker(NAME)
        prober = Prober(breaker)
        for turn in range(count):
            for _ in range(QUIET_ROUNDS):
                begun = time.monotonic()
                quiet += prober.round()
                took.append(time.monotonic() - begun)
            name, words = injection(prober, turn, draw)
            breaker.apply(Schedule.parse(words).steps[0])
            begun, said = time.monotonic(), list[str]()
            while not said and time.monotonic() - begun < LIMIT_S:
                said = prober.round()
            passed = (time.monotonic() - begun) * 1000
            wrong += [(name, each) for each in said if each != name]
            if name in said:
                times[kinds[turn % 3]].append(passed)
            breaker.clear()
            prober.forget()
            time.sleep(0.2)
            prober.round()
            prober.forget()
    for index, kind in enumerate(kinds):
        found = np.array(sorted(times[kind]))
        tried = len(range(index, count, 3))
        at = (
            f"median {np.median(found):.0f} p90 {np.quantile(found, 0.9):.0f} max {found[-1]:.0f} ms"
            if len(found)
            else ""
        )
        print(f"{kind:<16} named {len(found)} of {tried}  {at}")
    print(f"wrong {wrong}; quiet {quiet}; a round takes {1000 * np.median(took):.1f} ms")


if __name__ == "__main__":
    main()
