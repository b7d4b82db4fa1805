"""Is a larger window ever slower, and does each take the time that its closed form says?

Flows with a fixed window over one switch: one alone, a ring of eight, an incast of four. A window is a number of
packets; the threshold (bytes between two reports), the packet size, the rate and the round trip vary as well.

* one flow: with a window of `k` packets, `k` leave in each round trip, or the line is full; to 5 %;
* a ring: its steps one after the other, each as one flow; to 5 %, and no more than if a SACK and an ACK a packet (a
  request is answered by both), and an EV probe and its answer in each round trip, shared the ports and waited for the
  packet in service at both, and the last packets of a step held the window of the next one until they were reported;
* an incast: the receiver's line is full, or each sender sends `k` in each round trip; to 8 %, because windows closed
  while they shared the line, and the last sender opens its own again; to 25 % where the switch trims, and quick adapt
  closes them to what it has delivered (20.6 % is the worst of 480 such runs);
* one packet more in the window takes no longer; in an incast it may by as much as it may miss its closed form.

    python -m bench.sim.windows [--draw N] [--seed S] [--json]      all of it in minutes, or N drawn rows
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import msgspec

from openmrc.engine.state.params import NOMINAL_OVERHEAD
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import simulate
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.units import PS_PER_US
from spec.space import surfaces

NETWORK = MrcTransport().network
HEADER, REPORT = NETWORK.header, NETWORK.control_size  # bytes on the wire
SWITCH_NS = 300
PACKETS = {"flow": 240, "ring": 240, "incast": 1000}  # of a message, and of a step of the ring
RING, SENDERS = 8, 4
STEPS = 2 * (RING - 1)
SPACE = surfaces()["windows"].dimensions
CLOSE = {"flow": 0.05, "ring": 0.05, "incast": 0.08}
CLOSE_IF_TRIMMED = 0.25  # an incast


@dataclass(frozen=True)
class Case:
    """One row: everything but the window."""

    shape: str
    threshold: int
    mtu: int
    gbps: int
    link_ns: int

    def wire_us(self, size: int) -> float:
        """Return how long `size` bytes take on a link."""
        return size * 8 / (self.gbps * 1000)

    @property
    def packet_us(self) -> float:
        """Return how long a packet takes on a link."""
        return self.wire_us(self.mtu + HEADER)

    @property
    def one_way_us(self) -> float:
        """Return how long a link, the switch and a link take without serialisation."""
        return (2 * self.link_ns + SWITCH_NS) / 1000

    @property
    def round_trip_us(self) -> float:
        """Return the time from a packet's sending to its report."""
        return 2 * (self.packet_us + self.wire_us(REPORT) + self.one_way_us)

    @property
    def packets(self) -> int:
        """Return how many packets a message has."""
        return PACKETS[self.shape]

    def expected_us(self, window: int) -> tuple[float, float]:
        """Return between which times the last byte is acknowledged, by the closed form."""
        alone = self._flow_us(window, self.packet_us, self.round_trip_us)
        match self.shape:
            case "flow":
                return alone, alone
            case "ring":
                shared = 2 * self.wire_us(REPORT) / self.round_trip_us
                busy = (self.packet_us + 2 * self.wire_us(REPORT)) / (1 - shared)
                back = self.wire_us(REPORT) * 2 + self.one_way_us
                longest = self._flow_us(window, busy, self.round_trip_us + 2 * self.packet_us)
                return STEPS * (alone - back) + back, STEPS * longest
            case _:
                line = (SENDERS * self.packets - 1) * self.packet_us + self.round_trip_us
                return max(line, alone), max(line, alone)

    def _flow_us(self, window: int, packet_us: float, round_trip_us: float) -> float:
        """Return how long packets take that leave `packet_us` apart, at most a window in each round trip."""
        if window * packet_us >= round_trip_us:
            return (self.packets - 1) * packet_us + round_trip_us
        turns, rest = divmod(self.packets - 1, window)
        return (turns + 1) * round_trip_us + rest * packet_us

    def measured(self, window: int) -> tuple[float, int]:
        """Return what the simulator says: the time in us, and how many packets the switch trimmed."""
        chunk = self.packets * self.mtu
        work: dict[str, Any] = {"kind": "incast", "size": chunk, "senders": SENDERS, "receiver": 0, "first_sender": 1}
        if self.shape == "flow":
            work["senders"] = 1
        elif self.shape == "ring":
            work = {"kind": "ring_all_reduce", "size": RING * chunk}
        t0 = {"down": RING, "switch_ns": SWITCH_NS}
        plane = {"count": 1, "host_gbps": self.gbps, "host_link_ns": self.link_ns, "t0": t0}
        settings = {"max_cwnd": window * (self.mtu + NOMINAL_OVERHEAD), "sack_threshold": self.threshold}
        made = {
            "name": "windows",
            "fabric": {"name": "switch", "hosts": {"count": RING}, "planes": [plane]},
            "transport": {"name": "mrc", "mtu": self.mtu, "settings": settings},
            "workloads": [work],
            "until": "1s",
        }
        done = simulate(msgspec.convert(made, Scenario))
        if not done.is_complete:
            raise SystemExit(f"{self}, window {window}: not every flow finished")
        return float(done.results.finished.max()) / PS_PER_US, done.results.counters["trimmed_arrivals"]


@dataclass(frozen=True)
class Row:
    """What the windows of one case take."""

    case: Case
    windows: tuple[int, ...]
    measured: tuple[float, ...]  # us
    trimmed: tuple[int, ...]  # packets
    expected: tuple[tuple[float, float], ...]  # us, between which

    def problems(self) -> Iterator[str]:
        """Say which windows miss their closed form, and which are slower than a smaller one."""
        least = float("inf")
        for window, took, trimmed, (low, high) in zip(
            self.windows, self.measured, self.trimmed, self.expected, strict=True
        ):
            is_incast = self.case.shape == "incast"
            close = CLOSE_IF_TRIMMED if is_incast and trimmed else CLOSE[self.case.shape]
            slack = close if is_incast else 1e-3
            if not low * (1 - close) <= took <= high * (1 + close):
                yield f"{self.case}, window {window}: {took:.1f} us, closed form {low:.1f} to {high:.1f}"
            if took > least * (1 + slack):
                yield f"{self.case}, window {window}: {took:.1f} us, a smaller one {least:.1f}"
            least = min(least, took)


def cases() -> list[Case]:
    """Return every combination of `spec/space.toml` but for the window."""
    return [Case(*each) for each in product(*(SPACE[field] for field in Case.__annotations__))]


def row(case: Case, windows: tuple[int, ...]) -> Row:
    """Measure the windows of a case."""
    measured, trimmed = zip(*(case.measured(window) for window in windows), strict=True)
    return Row(case, windows, measured, trimmed, tuple(case.expected_us(window) for window in windows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, help="only so many cases, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    chosen = cases() if wanted.draw is None else random.Random(wanted.seed).sample(cases(), wanted.draw)
    rows = []
    for case in chosen:
        rows.append(row(case, tuple(SPACE["window"])))
        print(case, *rows[-1].problems(), sep="\n  ", file=sys.stderr, flush=True)
    wrong = [each for one in rows for each in one.problems()]
    if wanted.json:
        print(json.dumps([asdict(one) for one in rows]))
    else:
        print(*wrong, f"{len(rows) * len(SPACE['window'])} runs, {len(wrong)} misses", sep="\n")
    raise SystemExit(len(wrong) > 0)


if __name__ == "__main__":
    main()
