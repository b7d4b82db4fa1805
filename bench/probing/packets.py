"""Break links of a packet simulation and count what the localiser names from its endpoints' votes alone.

    python -m bench.probing.packets --nics 1024 --trials 20
    python -m bench.probing.packets --nics 128 --trials 50
    python -m bench.probing.packets --nics 1024 --trials 504 --records FILE   # again and again until all are run

    python -m bench.probing.packets --nics 1024 --trials 60 --probes 1000 --window 5000 --kinds silent
    python -m bench.probing.packets --nics 128 --trials 500 --probes 200 --window 6000 --kinds grey --records FILE

Every trial is a run of the packet simulator: NICs on two planes of 100 Gb/s with T0s of 16, permutations with several
strides, one or two faults at drawn places from 20 us on. Every 10 us the controller of `mrc map watch`
(`FabricController`) takes the deliveries and losses of all EVs, as on the live page. There are no probes: this is what
endpoints' votes say by themselves.

With `--probes` the plan of probes is sent beside, as packets, and the fault begins 1 ms later, when the messages are
over: this is what probes say by themselves, every 50 us. A trial ends half a millisecond after its parts were named.
With many NICs there are too many EVs for votes. A slow port shows beside data only, so its messages are of 32 MiB
between random pairs, and it is slow from 220 us on, for 1 ms. `--kinds grey`: all six kinds that data meets, or that
lose nothing.

named     broken parts about which a verdict was right within `--window` simulated us: the recall
located   of all broken parts, those named by their own name
precision verdicts (each part once a trial) about a broken part, a piece of it or a switch that it belongs to; until
          all messages are delivered (some 200 us)
us        from the fault to the first right verdict about a part: median, largest
effects   in the first right verdicts

Shares come with Wilson's intervals of 95 %. Late hosts have no meaning here (`bench.probing.localisation`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from bench.probing.localisation import NONE, interval
from bench.probing.records import trials
from openmrc.fabric.model.naming import links_at
from openmrc.operations.page.operated_simulation import OperatedSimulation
from openmrc.sim.scenario.description import load

KINDS: dict[str, list[tuple[str, str]]] = {  # which parts, and the words of the fault
    "silent cable": [("cable", 'loss: "100%"')],
    "silent direction": [("link", 'loss: "100%"')],
    "silent T0": [("t0", 'loss: "100%"')],
    "silent T1": [("t1", 'loss: "100%"')],
    "silent host cable": [("host cable", 'loss: "100%"')],
    "flapping cable": [("cable", 'every: 100us, times: 20, loss: "100%"')],
    "5 % direction": [("link", 'loss: "5%"')],
    "1 % direction": [("link", 'loss: "1%"')],
    "1 % cable": [("cable", 'loss: "1%"')],
    "1 % T1": [("t1", 'loss: "1%"')],
    "0.1 % cable": [("cable", 'loss: "0.1%"')],
    "bit errors 1e-4": [("link", "bit_errors: 1e-4")],
    "bit errors 1e-5": [("link", "bit_errors: 1e-5")],
    "bit errors 1e-6": [("link", "bit_errors: 1e-6")],
    "bit errors 1e-7": [("link", "bit_errors: 1e-7")],
    "two silent cables": [("cable", 'loss: "100%"'), ("cable", 'loss: "100%"')],
    "silent and 1 %": [("cable", 'loss: "100%"'), ("link", 'loss: "1%"')],
}
GREY = {
    "packets above 1 KB": [("link", "mtu: 1KB")],
    "MTU 1500": [("cable", "mtu: 1500B")],
    "data class": [("link", 'data_loss: "100%"')],
    "bit errors 1e-4": KINDS["bit errors 1e-4"],
    "bit errors 1e-5": KINDS["bit errors 1e-5"],
    "slow port": [("link", "rate: 10Gbps")],
}
AFTER_US, SLOW_BEGIN_US, SLOW_WINDOW_US = 500, 220, 1000
FLAP_US = 30  # of a flapping cable; other faults last
STEP_US, BEGIN_US, T0_NICS = 10, 20, 16
PROBED_STEP_US, PROBED_BEGIN_US = 50, 1020
SCENARIO = """
name: packets
fabric:
  name: packets
  hosts: {{count: {nics}}}
  planes:
    - {{count: 2, host_gbps: 100, t0: {{down: 16, up: 16}}, t1: {{}}}}
transport: {{name: mrc}}
workloads:
{work}
faults:
{faults}
seed: {seed}
until: 50ms
"""


def place(where: str, nics: int, draw: np.random.Generator) -> str:
    """Return a part of plane 0."""
    t0, t1 = f"p0-t0-{draw.integers(nics // T0_NICS):02d}", f"p0-t1-{draw.integers(T0_NICS):02d}"
    if where == "host cable":
        return f"h{draw.integers(nics)} port 0"
    if where in ("t0", "t1"):
        return t0 if where == "t0" else t1
    ends = (t0, t1) if where == "cable" or draw.random() < 0.5 else (t1, t0)
    return ("<>" if where == "cable" else ">").join(ends)


def trial(kind: str, given: argparse.Namespace, index: int) -> dict[str, Any]:
    """Run one trial; return what was said of each broken part, and of others."""
    draw = np.random.default_rng([given.seed, index])
    kinds = KINDS | GREY
    parts = [place(where, given.nics, draw) for where, _ in kinds[kind]]
    is_slow = kind == "slow port"
    begin, window = (SLOW_BEGIN_US, SLOW_WINDOW_US) if is_slow else (begin_us(given), given.window)
    lasts = f"{FLAP_US}us" if kind == "flapping cable" else "40ms"
    faults = "\n".join(
        f'  - {{at: {begin}us, for: {lasts}, {words}, on: "{part}"}}'
        for part, (_, words) in zip(parts, kinds[kind], strict=True)
    )
    source = simulation(given, index, faults, "32MiB" if is_slow else "4MiB", begin + window)
    links = [set(links_at(source.topology, part).tolist()) for part in parts]
    times: list[float | None] = [None] * len(parts)
    exact, said, effects = [False] * len(parts), dict[str, bool](), [""] * len(parts)
    wrong = dict[str, str]()
    for _ in range(round((begin + window) / step_us(given))):
        frame = source.frame()
        for suspect, words in {each.suspect: each.votes for each in frame.verdicts if each.suspect not in said}.items():
            touched = set(links_at(source.topology, suspect).tolist())
            near = [at for at, each in enumerate(links) if touched <= each or touched >= each]
            said[suspect] = bool(near)
            if not near:
                wrong[suspect] = words
            for at in near:
                effects[at] = effects[at] or words.partition(":")[0]
                times[at] = frame.at - begin if times[at] is None else times[at]
                exact[at] |= touched == links[at]
        ends = [each + begin + AFTER_US for each in times if each is not None]
        if frame.finished or (given.probes and len(ends) == len(parts) and frame.at >= max(ends)):
            break
    source.close()
    return {"kind": kind, "parts": parts, "us": times, "exact": exact, "said": said, "effects": effects, "wrong": wrong}


def simulation(given: argparse.Namespace, index: int, faults: str, size: str, until: float) -> OperatedSimulation:
    """Prepare the run of a trial."""
    strides = [f", stride: {T0_NICS * (1 + at) + 1}" for at in range(given.peers)] if size == "4MiB" else [""]
    work = "\n".join(f"  - {{kind: permutation, size: {size}{stride}}}" for stride in strides)
    if given.probes:  # the run goes on
        work += f"\n  - {{kind: permutation, size: 4KiB, start: {until:.0f}us}}"
    text = SCENARIO.format(nics=given.nics, work=work, faults=faults, seed=given.seed + index)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packets.yaml"
        path.write_text(text)
        source = OperatedSimulation(load(path), step_us(given), probe_us=given.probes)
    if not source.picture().verdicts_from:
        raise SystemExit("too many EVs for votes: fewer NICs or --peers")
    return source


def begin_us(given: argparse.Namespace) -> int:
    """Return when the fault begins (us)."""
    return PROBED_BEGIN_US if given.probes else BEGIN_US


def step_us(given: argparse.Namespace) -> int:
    """Return the time between two explanations (us)."""
    return PROBED_STEP_US if given.probes else STEP_US


def summary(kind: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of some trials."""
    times = sorted(us for each in found for us in each["us"] if us is not None)
    broken, exact = sum(len(each["parts"]) for each in found), sum(sum(each["exact"]) for each in found)
    said = [right for each in found for right in each["said"].values()]
    return {
        "kind": kind, "trials": len(found), "broken": broken, "named": len(times), "exact": exact,
        "wrong": len(said) - sum(said), "recall": interval(len(times), broken), "located": interval(exact, broken),
        "precision": interval(sum(said), len(said)),
        "effects": Counter(each for trial in found for each in trial["effects"] if each),
        "us_median": statistics.median(times) if times else NONE, "us_largest": times[-1] if times else NONE,
    }  # fmt: skip


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nics", type=int, default=1024)
    asked.add_argument("--trials", type=int, default=20)
    asked.add_argument("--peers", type=int, default=1)
    asked.add_argument("--window", type=float, default=300.0, help="simulated us after the fault")
    asked.add_argument("--probes", type=float, default=0.0, help="simulated us between loops over a cable; 0: none")
    asked.add_argument("--kinds", default="", help="only those with this in their name")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--limit", type=float, default=280.0, help="s; no trial begins later")
    asked.add_argument("--records", type=Path, help="keeps the trials, so that a later run goes on with the next one")
    given = asked.parse_args()
    options = {"nics": given.nics, "peers": given.peers, "window": given.window, "seed": given.seed}
    options |= {"probes": given.probes, "chosen": given.kinds}
    among = KINDS | GREY if given.kinds else KINDS
    kinds = list(GREY) if given.kinds == "grey" else [kind for kind in among if given.kinds in kind]
    found = trials(
        given.records, options, given.trials, given.limit, lambda index: trial(kinds[index % len(kinds)], given, index)
    )
    rows = [summary(kind, [each for each in found if each["kind"] == kind]) for kind in kinds]
    rows.append(summary("all", found))
    print(json.dumps({**options, "trials": len(found), "kinds": [row for row in rows if row["trials"]],
                      "wall_s": round(sum(each["wall_s"] for each in found), 1)}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
