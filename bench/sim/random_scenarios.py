"""Do random scenarios end, add up and finish what can be finished? Fabrics, transports, workloads and faults are drawn.

A scenario fails if the run takes too long, raises anything, ends otherwise for two threads than for one, if its summary
does not add up, if a flow that no lasting fault concerns does not finish, if a flow neither ends nor is named with the
one it waits for, if a transport that repairs comes to a standstill with a flow begun, or if packets appear or vanish at
a link or a switch: sent + duplicated = arrived + losses by cause + on the way, and what arrives at a switch is sent by
it.

    python -m bench.sim.random_scenarios --count 2000            prints what failed and its seed; exit 1 if anything did
    python -m bench.sim.random_scenarios --seed 4711 --show      one scenario, as YAML
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from harness.link_accounts import link_accounts
from openmrc.errors import MrcError
from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.results.unfinished import UnfinishedCause, unfinished
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import OnProgress, Status, simulate
from openmrc.units import NEVER

LONGEST_S = 30.0  # processor time of one run, which does not depend on what else the machine does
MOST_MESSAGES = 50_000  # of background traffic, whose load counts payload: messages of a byte are many
SIMPLE = ("permutation", "incast", "all_to_all", "ring_all_reduce", "background", "outcast")
JOINED = (
    "pipeline", "mixture_of_experts", "hierarchical_all_reduce", "training_step", "tree_all_reduce", "all_gather",
    "reduce_scatter",
)  # fmt: skip
TRANSPORTS = ("mrc", "mrc", "mrc", "uet", "roce", "roce_selective", "roce_adaptive", "datagrams")
LOAD_BALANCING = ("oblivious", "bitmap", "reps", "mixed")
RANDOM_FATES = ("loss", "trim", "reorder", "delay", "jitter", "bit_errors")
REPAIRS = ("mrc",)  # transports that finish whatever a passing fault took


def drawn(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    draw = random.Random(seed)
    planes, down, hosts = draw.choice((1, 1, 2, 4)), draw.choice((2, 4)), draw.choice((8, 16))
    transport = _transport(draw)
    fabric = _fabric(draw, planes, down, hosts)
    gbps = hosts * planes * fabric["planes"][0]["host_gbps"]
    made = {
        "name": f"random {seed}",
        "fabric": fabric,
        "transport": transport,
        "workloads": [*(_workload(draw, hosts, gbps) for _ in range(draw.choice((1, 1, 2)))), *_beside(seed, hosts)],
        "faults": [_fault(draw, planes, hosts) for _ in range(draw.choice((0, 0, 1, 1, 2, 3)))],
        "sampling": {"every": "1ms"},
        "seed": seed % (1 << 31),
        "until": "200ms",
    }
    return msgspec.convert(made, Scenario)


def _fabric(draw: random.Random, planes: int, down: int, hosts: int) -> dict[str, Any]:
    tier = {"switch_ns": draw.choice((0, 250, 600)), "up_link_ns": draw.choice((50, 300, 1000)), "buffer_kb": 0}
    tiers: dict[str, Any] = {"t0": {"down": down, "up": draw.choice((1, 2, 4)), **tier}}
    if draw.random() < 0.3:
        tiers["t0"]["up"] = 2
        tiers |= {"t1": {"down": 2, "up": 2, **tier}, "t2": {"switch_ns": tier["switch_ns"], "buffer_kb": 0}}
    else:
        tiers["t1"] = {"switch_ns": tier["switch_ns"], "buffer_kb": 0}
    plane = {"count": planes, "host_gbps": draw.choice((25, 100, 400)), "host_link_ns": draw.choice((20, 300)), **tiers}
    return {"name": "random", "hosts": {"count": hosts}, "planes": [plane]}


def _transport(draw: random.Random) -> dict[str, Any]:
    name = draw.choice(TRANSPORTS)
    made: dict[str, Any] = {"name": name, "mtu": draw.choice((256, 1024, 4096, 4096, 9216))}
    if name == "uet" and draw.random() < 0.7:
        made["load_balancing"] = draw.choice(LOAD_BALANCING)
    if name not in ("mrc", "datagrams") and draw.random() < 0.5:
        made["settings"] = {"reroute_delay_us": 50.0, "failover_delay_us": 50.0}
    if name == "mrc":
        settings: dict[str, Any] = {"evs": draw.choice((4, 16, 128)), "loss_threshold": draw.choice((1, 1, 3))}
        made["settings"] = settings | ({"trimming": False} if draw.random() < 0.2 else {})
    elif name.startswith("roce"):
        made["qps"] = draw.choice((1, 2, 8))
    return made


def _workload(draw: random.Random, hosts: int, gbps: int) -> dict[str, Any]:
    size = draw.choice((1, 100, 4096, 5000, 40_000, 200_000))
    start = f"{draw.choice((0, 0, 3, 40))}us"
    kind = draw.choice((*SIMPLE, *JOINED))
    if kind in JOINED:
        return _joined(draw, kind, size, hosts) | {"start": start}
    match kind:
        case "incast":
            return {"kind": kind, "size": size, "senders": draw.randint(1, hosts - 1), "start": start}
        case "outcast":
            return {"kind": kind, "size": size, "receivers": draw.randint(1, hosts - 1), "start": start}
        case "all_to_all":
            return {"kind": kind, "size": min(size, 5000), "group": 4, "window": draw.choice((0, 1, 2)), "start": start}
        case "ring_all_reduce":
            return {"kind": kind, "size": max(size, 64), "group": 4, "start": start}
        case "background":
            load = draw.choice((0.05, 0.3))
            for_all_ns = 8 * MOST_MESSAGES * size / (load * gbps)
            return {"kind": kind, "size": size, "load": load, "duration": f"{min(10_000, int(for_all_ns) + 1)}ns"}
        case _:
            return {"kind": "permutation", "size": size, "messages": draw.choice((1, 3)), "start": start}


def _beside(seed: int, hosts: int) -> list[dict[str, Any]]:
    """Return what some scenarios have beside the rest: checkpoints on a schedule, a job on some of the hosts."""
    draw = random.Random(f"{seed} beside")  # the rest of a seed's scenario stays what it was
    some = draw.choice((f"0-{hosts // 2 - 1}", f"1-{hosts - 1}/2"))
    checkpoints: dict[str, Any] = {
        "kind": "checkpoint", "size": draw.choice((1, 9_000, 60_000)), "piece": 4096, "storage": draw.choice((1, 2)),
        "window": draw.choice((1, 4)), "over": f"{draw.choice((0, 20))}us", "single_path": draw.random() < 0.5,
        "every": "30us", "times": draw.randint(2, 4), "hosts": draw.choice((None, some)),
    }  # fmt: skip
    job: dict[str, Any] = {
        "kind": "training_step", "steps": 2, "compute": "3us", "stragglers": draw.choice((0, 1)), "straggling": 4.0,
        "collectives": [{"kind": "ring_all_reduce", "size": 10_000}], "hosts": some,
    }  # fmt: skip
    wanted: list[list[dict[str, Any]]] = [[], [], [], [], [checkpoints], [job], [checkpoints, job]]
    return draw.choice(wanted)


def _joined(draw: random.Random, kind: str, size: int, hosts: int) -> dict[str, Any]:
    """Return a workload whose flows wait for others."""
    match kind:
        case "pipeline":
            return {"kind": kind, "size": size, "stages": 4, "microbatches": draw.choice((2, 5)), "forward": "1us",
                    "backward": "2us", "schedule": draw.choice(("gpipe", "1f1b"))}  # fmt: skip
        case "mixture_of_experts":
            return {"kind": kind, "size": max(size, 64), "skew": draw.choice((0.0, 1.2)), "layers": draw.choice((1, 2))}
        case "hierarchical_all_reduce":
            return {"kind": kind, "size": max(size, 256), "domain": 4, "domain_gbps": 900}
        case "training_step":
            inner = draw.choice(("ring_all_reduce", "all_to_all", "tree_all_reduce", "hierarchical_all_reduce"))
            domain = {"domain": 4, "domain_gbps": 900} if inner.startswith("hierarchical") else {}
            parts = {"size": max(min(size, 40_000), 256), **domain}
            return {"kind": kind, "steps": draw.choice((1, 3)), "compute": "3us", "jitter": draw.choice((0.0, 0.2)),
                    "collectives": [{"kind": inner, **parts}]}  # fmt: skip
    return {"kind": kind, "size": max(size, 256), "group": draw.choice((0, hosts // 2))}


def _fault(draw: random.Random, planes: int, hosts: int) -> dict[str, Any]:
    plane = draw.randrange(planes)
    place = draw.choice((f"plane {plane}", f"h{draw.randrange(hosts)} port {plane}", "2 random links of all", "all",
                         f"p{plane}-t1-0", f"p{plane}-t0-0", f"p{plane}-t0-0>p{plane}-t1-0"))  # fmt: skip
    made: dict[str, Any] = {"at": f"{draw.choice((0, 1, 5, 20))}us"}
    if draw.random() < 0.4 and place != "all":
        made["down"] = place
    else:
        word = draw.choice((*RANDOM_FATES, "duplicate", "rate"))
        made |= {word: _amount(draw, word), "on": place}
    if draw.random() < 0.8:
        made["for"] = f"{draw.choice((1, 10, 60))}us"
        if draw.random() < 0.3:
            made |= {"every": "100us", "times": draw.randint(2, 5)}
    return made


def _amount(draw: random.Random, word: str) -> str:
    match word:
        case "delay" | "jitter":
            return draw.choice(("1us", "20us"))
        case "rate":
            return draw.choice(("1Gbps", "10Gbps"))
        case "bit_errors":
            return draw.choice(("1e-9", "1e-7"))
        case _:
            return draw.choice(("0.1%", "1%", "20%"))


def problems(scenario: Scenario, longest_s: float = LONGEST_S) -> list[str]:
    """Run a scenario; return everything that is wrong with it. `longest_s` is the limit of a run's processor time."""
    try:
        run = simulate(scenario, on_progress=_limit(longest_s))
        found = [*_sums(run), *_unfinished(scenario, run), *_named(scenario, run), *_packets(scenario, run)]
        again = simulate(scenario, threads=2, on_progress=_limit(longest_s)) if scenario.seed % 4 == 0 else run
    except TimeoutError:
        return [f"still running after {longest_s:.0f} s"]
    except MrcError as error:
        return [f"{type(error).__name__}: {error}"]
    if not np.array_equal(run.results.finished, again.results.finished):
        found.append("two threads give another result than one")
    return found


def _limit(longest_s: float) -> OnProgress:
    """Return what ends a run that begins now after its processor time, by TimeoutError."""
    begun = time.process_time()

    def watch(_: Status) -> None:
        if time.process_time() - begun > longest_s:
            raise TimeoutError

    return watch


def _sums(run: SimulationRun) -> Iterator[str]:
    """Yield where the summary and the run disagree."""
    result, flows = summary(run), run.work.moving
    finished = int((run.results.finished[flows] < NEVER).sum())
    if result["finished"] != finished or (finished == len(flows)) != run.is_complete:
        yield f"summary: {result['finished']} finished, counted {finished} of {len(flows)}"
    if sum(each["finished"] for each in result["workloads"]) != finished:
        yield "workloads do not add up to the whole"
    ends = run.results.finished[flows]
    if ((ends <= run.results.started[flows]) & (ends < NEVER)).any():
        yield "a flow was finished before it began, or at once"
    if finished and result["fct_us"]["max"] < result["fct_us"]["mean"]:
        yield "the slowest flow is faster than the mean"


def _unfinished(scenario: Scenario, run: SimulationRun) -> Iterator[str]:
    """Yield how many flows did not finish although nothing kept them from it for good."""
    left = int((run.results.finished[run.work.moving] >= NEVER).sum())
    if not left:
        return
    lasting = [fault for fault in scenario.faults if "for" not in fault]
    harmless = not scenario.faults or (not lasting and scenario.transport.name in REPAIRS)
    if harmless and scenario.transport.name != "datagrams":
        yield f"{left} flows did not finish, and nothing broke for good"


def _named(scenario: Scenario, run: SimulationRun) -> Iterator[str]:
    """Yield flows that neither ended nor are named, and flows that a transport forgot."""
    left = unfinished(run.work, run.results)
    flows = run.work.moving
    ended = int((np.minimum(run.results.finished, run.results.failed)[flows] < NEVER).sum())
    if ended + len(left.begun) + len(left.waiting) != len(flows):
        yield f"{len(flows)} flows, {ended} ended, {len(left.begun)} begun, {len(left.waiting)} waiting"
    nobody = int((left.holder < 0).sum())
    if nobody and left.cause in (UnfinishedCause.STANDSTILL, UnfinishedCause.FAILED):
        yield f"{nobody} flows never began and wait for nobody"
    if run.results.standstill and len(left.begun) and scenario.transport.name != "datagrams":
        yield f"{len(left.begun)} flows had begun when nothing could happen any more; the first: {left.begun[0]}"


def _packets(scenario: Scenario, run: SimulationRun) -> Iterator[str]:
    """Yield where packets appear or vanish."""
    links, topology = link_accounts(run.results.links), run.topology
    if (links.on_the_way < 0).any() or int(links.on_the_way.sum()) != run.results.on_the_way:
        yield f"links: {int(links.on_the_way.sum())} without an end, {run.results.on_the_way} on the way"
    if any((cause < 0).any() for cause in (links.full, links.control_full, links.down, links.at_random)):
        yield "links: a cause has taken less than nothing"
    if scenario.transport.name.startswith("roce"):
        return  # PAUSE frames begin at switches
    into = np.bincount(topology.link_destination, links.arrived, topology.nodes)
    out = np.bincount(topology.link_source, links.sent, topology.nodes)
    wrong = np.flatnonzero((into != out) & (np.arange(topology.nodes) >= topology.nics))
    if len(wrong):
        node = int(wrong[0])
        yield f"{topology.name(node)}: {into[node]:.0f} arrived, {out[node]:.0f} sent or dropped"


def main() -> None:
    """Run many, print those that fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--show", action="store_true", help="print the first scenario and what is wrong with it")
    options = parser.parse_args()
    if options.show:
        sys.stdout.write(msgspec.yaml.encode(drawn(options.seed)).decode())
        options.count = 1
    failed, kinds = 0, Counter[str]()
    begun = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        scenario = drawn(seed)
        kinds[scenario.transport.name] += 1
        wrong = problems(scenario)
        failed += bool(wrong)
        for text in wrong:
            print(f"seed {seed}: {text}", flush=True)
    shown = ", ".join(f"{name} {count}" for name, count in sorted(kinds.items()))
    print(f"{options.count} scenarios in {time.monotonic() - begun:.0f} s, {failed} failed ({shown})")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
