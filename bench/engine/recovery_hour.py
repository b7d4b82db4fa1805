"""How long after a plane returns from an outage is it in use again?

Virtual time, interpreted: two endpoints over four planes; one plane falls silent in the middle of a
transfer, which retires some of its values and leaves the others unused, and returns later. The figure is the time from
its return until all its values are in use again, the worst of some phases. Probes back off to one a
second at most, so one second is the mark.

    python -m bench.engine.recovery_hour [--json]
"""

from __future__ import annotations

import argparse
import json

from harness.engine_pair import NetworkConditions, Pair
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvState
from openmrc.engine.state.params import Settings
from openmrc.units import PS_PER_MS

PLANE = 1
QUIET_FROM_US = 1_000_000
OUTAGES_S = (1, 60, 3600)
PHASES_S = (0.0, 0.03, 0.5)  # of the return between two probes; after 26 ms one has just been missed
MARK_MS = 1000.0


def recovery_ms(outage_s: float) -> float:
    """Return the milliseconds from the plane's return until all its values are in use."""
    returns_us = QUIET_FROM_US + int(outage_s * 1e6)
    conditions = NetworkConditions(silences=((PLANE, QUIET_FROM_US, returns_us),))
    pair = Pair(conditions=conditions, settings=Settings(link_gbps=100.0, probe_interval_max_us=1e6), timeout_us=1000.0)
    number = pair.row(0).rotation_base + PLANE
    rotation = pair.engine.rotations[number]
    pair.run(until_us=QUIET_FROM_US)
    while rotation.active > 0 and not is_silent(pair):
        pair.write(0, 0, 64 * pair.mtu, 0)
        pair.run(until_us=pair.now / 1e6 + 10_000, stop=pair.is_done)
    assert any(ev.state == EvState.ASSUMED_BAD for ev in pair.evs_of() if ev.port == PLANE)
    pair.run(until_us=returns_us)
    returned = pair.now
    pair.run(until_us=returns_us + 1e8, stop=lambda: is_whole(pair, number))
    return (pair.now - returned) / PS_PER_MS


def is_whole(pair: Pair, rotation: int) -> bool:
    """Return whether all of a rotation's values are in use."""
    return pair.engine.rotations[rotation].active == ev_states.wanted(pair.engine, rotation) and not is_silent(pair)


def is_silent(pair: Pair) -> bool:
    """Return whether the first endpoint sends no data on the plane."""
    return bool(pair.row(0).silent_ports >> PLANE & 1)


def main() -> None:
    """Print one line for each outage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {str(outage): max(recovery_ms(outage + phase) for phase in PHASES_S) for outage in OUTAGES_S}
    if options.json:
        print(json.dumps({"recovery_ms_by_outage_s": figures, "mark_ms": MARK_MS}))
        return
    for outage, figure in figures.items():
        print(f"after {outage:>4} s of silence: {figure:7.1f} ms; ratio to the mark of 1 s: {figure / MARK_MS:.2f}")


if __name__ == "__main__":
    main()
