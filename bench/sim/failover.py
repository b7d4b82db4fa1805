"""How long does a pulled cable hurt one flow at full rate, in round trips of the flow? `python -m bench.sim.failover`.

One NIC sends to another over four planes of 100 Gb/s; the cables of the sender and those of its T0s upwards are pulled
in turn. `stall` is the longest time during which nothing more was delivered in order, as the sender knows it, while the
cable was out; `quiet` the same before. The mark, twice a round trip, is that of links on which software and
serialisation are not what takes the time; `bench.lab.failover` asks the same of the kernel's network.

    python -m bench.sim.failover [--pulls 100] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np
import numpy.typing as npt

from bench.lab.experiments.pieces import longest_gap_ms
from bench.lab.experiments.simulated import deliveries
from openmrc.base.faults import Schedule
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.sim.loop.run import World
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.units import PS_PER_MS, PS_PER_US

PLANES, GBPS, UPLINKS = 4, 100, 4
EVERY_MS, OUT_MS = 8, 2  # bad EVs are probed for a few milliseconds before they are used again
_BEFORE_MS = 0.5
MARK = 2.0  # round trips, p99


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pulls", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    result = failover(wanted.pulls)
    if wanted.json:
        print(json.dumps(result))
    else:
        print(f"{wanted.pulls} pulls; a round trip of the flow takes {result['round_trip_us']:.1f} us")
        for name in ("stall", "quiet"):
            print(f"{name}  us  p50 {result[f'{name}_p50_us']:6.1f}  p99 {result[f'{name}_p99_us']:6.1f}")
        print(f"stall p99: {result['round_trips']:.2f} round trips, mark {MARK:g}")
    sys.exit(0 if result["round_trips"] <= MARK else 1)


def failover(pulls: int) -> dict[str, float]:
    """Run the flow with its pulls and return the figures."""
    starts = [1 + EVERY_MS * number for number in range(pulls)]
    trip, times = _run(starts)
    stall = [_longest_us(times, at, at + OUT_MS) for at in starts]
    quiet = [_longest_us(times, at - _BEFORE_MS, at) for at in starts]
    (s50, s99), (q50, q99) = (np.percentile(values, (50, 99)).tolist() for values in (stall, quiet))
    return {
        "pulls": pulls,
        "round_trip_us": trip,
        "stall_p50_us": s50,
        "stall_p99_us": s99,
        "quiet_p50_us": q50,
        "quiet_p99_us": q99,
        "round_trips": s99 / trip,
    }


def _run(starts: list[int]) -> tuple[float, npt.NDArray[np.int64]]:
    """Run the flow with pulls at these times (ms); return its round trip (us) and when each piece arrived (ns)."""
    plane = Plane(count=PLANES, host_gbps=GBPS, t0=Tier(down=4, up=UPLINKS), t1=Tier())
    topology = build(Fabric(name="failover", hosts=Hosts(count=8), planes=(plane,)))
    places = [f"h0<>p{number}-t0-00" for number in range(PLANES)]
    places += [f"p{number}-t0-00<>p{number}-t1-{up:02}" for number in range(PLANES) for up in range(UPLINKS)]
    text = "; ".join(f"at: {at}ms, for: {OUT_MS}ms, down: {places[n % len(places)]}" for n, at in enumerate(starts))
    trips: list[int] = []

    def observe(world: World) -> None:
        if world.now < starts[0] * PS_PER_MS:
            trips.append(int(max(peer.srtt for peer in world.state.engine.peers)))

    ends, seconds = (0, topology.nics - 1), (starts[-1] + EVERY_MS) / 1e3
    times = deliveries(topology, ends, seconds, PLANES * GBPS, MrcTransport(), Schedule.parse(text), observe)
    return trips[-1] / PS_PER_US, times


def _longest_us(times: npt.NDArray[np.int64], begin_ms: float, end_ms: float) -> float:
    """Return the longest time without a delivery within begin..end."""
    return longest_gap_ms(times, round(begin_ms * 1e6), round(end_ms * 1e6)) * 1e3


if __name__ == "__main__":
    main()
