"""Are results the same bits on another processor? Digests of what the engine, the simulator and captures end in.

A line a result, to be printed on each processor and compared by `diff` (`.ci/arm` does it): the rows of two engines
after writes over a network that loses, trims, marks, doubles, reorders and falls silent; summaries of random scenarios
of all transports; and every packet of one NIC.

    python -m bench.same_bits [--conversations 20] [--scenarios 20]
"""

from __future__ import annotations

import argparse
import hashlib
import json

import msgspec
import numpy as np

from bench.sim.random_scenarios import drawn
from harness.engine_pair import REGION_AT, NetworkConditions, Pair
from openmrc.errors import MrcError
from openmrc.sim.results.captures import Writer
from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import HEADERS, Capture
from openmrc.sim.simulate import simulate

HOSTILE = NetworkConditions(0.02, 0.02, 0.005, 0.05, 0.02, jitter_us=8.0, silences=((1, 40, 900),))
WRITES, WRITE_BYTES = 24, 40_000
OF_THE_MACHINE = ("setup_s", "wall_s", "peak_rss_mb")  # not of the run


def main() -> None:
    """Print a digest a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--scenarios", type=int, default=20)
    options = parser.parse_args()
    for seed in range(options.conversations):
        print(f"conversation {seed}: {conversation(seed)}", flush=True)
    for seed in range(options.scenarios):
        print(f"scenario {seed}: {scenario(seed)}", flush=True)


def conversation(seed: int) -> str:
    """Return the digest of all tables of two endpoints, the receiver's memory and every completion."""
    pair = Pair(HOSTILE, seed, compiled=True)
    for index in range(WRITES):
        pair.write(index, REGION_AT + index * WRITE_BYTES, WRITE_BYTES, index * WRITE_BYTES)
    pair.run(stop=pair.is_done)
    digest = hashlib.sha256()
    for each in pair.engine:
        digest.update(np.asarray(each).tobytes())
    digest.update(pair.memory[1])
    digest.update(repr([pair.completions, pair.diary]).encode())
    return digest.hexdigest()


def scenario(seed: int) -> str:
    """Return the digest of a random scenario's summary and of one NIC's packets, or the error that it ends in."""
    described = drawn(seed)
    if described.transport.name == "mrc":
        described = msgspec.structs.replace(described, capture=Capture(hosts=(0,)))
    try:
        run = simulate(described)
    except MrcError as error:
        return f"{type(error).__name__}: {error}"
    told = {key: value for key, value in summary(run).items() if key not in OF_THE_MACHINE}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode())
    if run.captured is not None:
        for frame in Writer(run.topology, run.captured, HEADERS).frames(0):
            digest.update(repr(frame).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
