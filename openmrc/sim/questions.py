"""Design questions as sweeps: each has a base scenario, the fields to vary, and a function that states the answer.

All run synchronous training steps on a two-tier fabric of one size: 100 us of computation, then a ring all-reduce of
2 MiB within groups of 16 drawn at random, and (where queues matter) an all-to-all. The answers hold for this
workload; for another one, save a question's files and edit them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from openmrc.errors import UsageError
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric
from openmrc.sim.network.reach import reaches
from openmrc.sim.sweep import Plot, Sweep

NIC_GBPS = 800
FEWEST = 16  # GPUs: a group of the all-reduce
LARGEST_T0 = 256  # ports down: a 51.2T switch of 100G ports, half of them up
FLAPPING_SHARE = 256  # one of 256 T0-T1 links flaps
FIRST_T1 = "p0-t1-00"
REROUTE_US = 1000  # of RoCE's routing in these questions, in its favour
MULTIPLE_FROM = 2.0  # ratio of times that is named as a multiple, not as a percentage
SURVIVED = 1.1  # longest acceptable step, relative to the step without flaps

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A question: its scenario and sweep for a number of GPUs, and the answer from its results."""

    name: str
    asks: str
    scenario: Callable[[int], dict[str, Any]]
    sweep: Callable[[int], Sweep]
    answer: Callable[[Sequence[Summary]], str]


def fabric(gpus: int, planes: int) -> dict[str, Any]:
    """Return a two-tier fabric without oversubscription; the NIC's rate is divided among planes."""
    if gpus < FEWEST or gpus % FEWEST:
        raise UsageError(f"--gpus: {gpus}: expected a multiple of {FEWEST}, at least {FEWEST}")
    down = FEWEST // 2
    while down * 2 <= LARGEST_T0 and gpus % (down * 2) == 0 and gpus // (down * 2) >= 4:
        down *= 2
    plane = {"count": planes, "host_gbps": NIC_GBPS / planes, "t0": {"down": down, "up": down}, "t1": {}}
    return {"name": f"{gpus} NICs, {planes} x {NIC_GBPS // planes}G", "hosts": {"count": gpus}, "planes": [plane]}


def _base(gpus: int, *, planes: int = 8, steps: int = 5, exchange: bool = False) -> dict[str, Any]:
    collectives: list[dict[str, Any]] = [
        {"kind": "ring_all_reduce", "size": "2MiB", "group": FEWEST, "placement": "random"}
    ]
    if exchange:
        collectives.append({"kind": "all_to_all", "size": "64KiB", "group": FEWEST, "placement": "random"})
    step = {"kind": "training_step", "steps": steps, "compute": "100us", "jitter": 0.02, "collectives": collectives}
    return {"name": "steps", "fabric": fabric(gpus, planes), "workloads": [step], "until": "2s"}


def _flaps(links: int) -> list[dict[str, Any]]:
    """Return flaps of this many T0-T1 links, in up to four alternating groups: each is down 150 of every 600 us."""
    turns = min(4, links)
    each = [links // turns + (turn < links % turns) for turn in range(turns)] if turns else []
    return [
        {"at": f"{50 + 150 * turn}us", "for": "150us", "every": "600us", "times": 50,
         "down": f"{count} random fabric links of all"}
        for turn, count in enumerate(each)
    ]  # fmt: skip


def _uplinks(gpus: int, planes: int) -> int:
    return gpus * planes


def _planes(gpus: int) -> Sweep:
    down = [{"at": "20us", "down": "h1 port 0"}]
    lost = [{"at": "20us", "down": "plane 0"}]
    return Sweep(
        scenario="scenario.yaml",
        vary={},
        together=(
            {"fabric.planes.0.count": [1, 2, 4, 8], "fabric.planes.0.host_gbps": [800, 400, 200, 100]},
            {"name": ["no fault", "a NIC loses a port", "a plane is lost"], "faults": [[], down, lost]},
        ),
        plot=Plot(x="fabric.planes.0.count", y="step_us.mean", by="name"),
    )


def _flapping(gpus: int) -> Sweep:
    most = _uplinks(gpus, 8) // 4
    counts = [0, *(count for count in (1, 4, 16, 64, 256, 1024, 4096) if count <= most)]
    names = [f"{count:,} link{'s' * (count != 1)}" for count in counts]
    return Sweep(
        scenario="scenario.yaml",
        together=({"name": names, "faults": [_flaps(count) for count in counts]},),
        names={"name": "flapping"},
        plot=Plot(x="name", y="step_us.p99"),
    )


def _setting(name: str, values: list[Any], faults: Mapping[str, list[dict[str, Any]]]) -> Sweep:
    return Sweep(
        scenario="scenario.yaml",
        vary={f"transport.settings.{name}": values},
        together=({"name": list(faults), "faults": list(faults.values())},),
        plot=Plot(x=f"transport.settings.{name}", y="step_us.p99", by="name"),
    )


def _evs(gpus: int) -> Sweep:
    dead = max(1, _uplinks(gpus, 8) // 32)
    faults = [{"at": "20us", "down": f"{dead} random fabric links of all"}]
    return _setting("evs", [8, 16, 32, 64, 128, 256], {"no fault": [], f"{dead:,} T0-T1 links are lost": faults})


def _loss(gpus: int) -> Sweep:
    grey = max(1, _uplinks(gpus, 8) // 64)
    some = [{"at": "20us", "loss": "1%", "on": f"{grey} random fabric links of all"}]
    everywhere = [{"loss": "0.01%"}]
    return _setting(
        "loss_threshold", [1, 2, 4, 8], {f"{grey:,} links lose 1 %": some, "all links lose 0.01 %": everywhere}
    )


def _window(gpus: int) -> Sweep:
    topology = build(msgspec.convert(fabric(gpus, 8), Fabric))
    product = sum(port.bdp for port in reaches(topology, 4096, 64))
    values = [int(product * share) for share in (0.5, 1.0, 1.5, 2.0, 3.0)]
    made = _setting("max_cwnd", values, {"no fault": [], "a T1 is lost": [{"at": "20us", "down": FIRST_T1}]})
    return msgspec.structs.replace(made, names={"transport.settings.max_cwnd": "largest window (bytes)"})


def _transports(gpus: int) -> Sweep:
    """Eight planes of MRC against one of RoCE; the same share of links flaps, so eight times as many with MRC."""
    roce: dict[str, Any] = {"name": "roce", "qps": 4, "settings": {"reroute_delay_us": REROUTE_US}}
    designs: dict[str, tuple[dict[str, Any], int]] = {
        "MRC, 8 x 100G": ({"name": "mrc"}, 8),
        "RoCE, 1 x 800G": (roce, 1),
    }
    names, transports, fabrics, faults = [], [], [], []
    for name, (transport, planes) in designs.items():
        for flapping in (0, max(1, _uplinks(gpus, planes) // FLAPPING_SHARE)):
            names.append(
                name + (f", {flapping:,} of {_uplinks(gpus, planes):,} links flap" if flapping else ", no flaps")
            )
            transports.append(transport)
            fabrics.append(fabric(gpus, planes))
            faults.append(_flaps(flapping))
    group: dict[str, list[Any]] = {"name": names, "transport": transports, "fabric": fabrics, "faults": faults}
    return Sweep(scenario="scenario.yaml", together=(group,), plot=Plot(x="name", y="step_us.mean"))


def _lost_t1(gpus: int) -> Sweep:
    """Eight planes of MRC against one of RoCE, hashed and adaptive; a T1 is lost within the second step."""
    rerouted = {"settings": {"reroute_delay_us": REROUTE_US}}
    designs: dict[str, tuple[dict[str, Any], int]] = {
        "MRC, 8 x 100G": ({"name": "mrc"}, 8),
        "RoCE, 1 x 800G": ({"name": "roce", "qps": 16, **rerouted}, 1),
        "RoCE, adaptive": ({"name": "roce_adaptive", "qps": 4, **rerouted}, 1),
    }
    names, transports, fabrics, faults = [], [], [], []
    for name, (transport, planes) in designs.items():
        for lost in (False, True):
            names.append(name + (", a T1 fails" if lost else ", no fault"))
            transports.append(transport)
            fabrics.append(fabric(gpus, planes))
            faults.append([{"at": "200us", "down": FIRST_T1}] if lost else [])
    group: dict[str, list[Any]] = {"name": names, "transport": transports, "fabric": fabrics, "faults": faults}
    return Sweep(scenario="scenario.yaml", together=(group,), plot=Plot(x="name", y="step_us.mean"))


def _steps(result: Summary, figure: str = "mean") -> float | None:
    summary = result.get("summary")
    if summary is None or summary["step_us"]["finished"] < summary["step_us"]["count"]:
        return None
    return float(summary["step_us"][figure])


def _us(value: float) -> str:
    """Return a time as text, never with an exponent."""
    return f"{value:,.0f} us" if value >= 10_000 else f"{value:,.4g} us"


def _by_name(results: Sequence[Summary]) -> dict[str, list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for result in results:
        groups.setdefault(str(result["values"]["name"]), []).append(result)
    return groups


def _best_of(path: str, choice: str, figure: str) -> Callable[[Sequence[Summary]], str]:
    def answer(results: Sequence[Summary]) -> str:
        parts = []
        for name, group in _by_name(results).items():
            timed = [(took, each["values"][path]) for each in group if (took := _steps(each, figure)) is not None]
            if not timed:
                parts.append(f"{name}: no run finished its steps")
                continue
            best, worst = min(timed), max(timed)
            named = choice.format(best[1]).removesuffix("s" if best[1] == 1 else "")
            others = f", {_us(worst[0])} with {worst[1]:,}" if len(timed) > 1 else ""
            stopped = (
                f"; {len(group) - len(timed)} of {len(group)} runs did not finish" if len(timed) < len(group) else ""
            )
            parts.append(f"{name}: shortest steps with {named} ({figure} {_us(best[0])}{others}){stopped}")
        return ". ".join(parts) + "."

    return answer


def _survived(results: Sequence[Summary]) -> str:
    calm = _steps(results[0])
    if calm is None:
        return "The steps did not finish even without flaps."
    good = [each for each in results if (took := _steps(each)) is not None and took <= SURVIVED * calm]
    most = good[-1]["values"]["name"]
    over = next((each for each in results if each not in good), None)
    limit = f"; with {over['values']['name']} flapping, it takes longer" if over is not None else ""
    return f"The mean step stays within {SURVIVED - 1:.0%} of {_us(calm)} with up to {most} flapping{limit}."


def _compared(results: Sequence[Summary], calm_words: str = ", no flaps", fault_words: str = "under flaps") -> str:
    parts = []
    for calm, flaps in zip(results[::2], results[1::2], strict=True):
        name = str(calm["values"]["name"]).removesuffix(calm_words)
        base, took = _steps(calm), _steps(flaps)
        if base is None or took is None:
            parts.append(f"{name}: the steps did not finish")
        else:
            longer = f"{took / base - 1:+.1%}" if took < MULTIPLE_FROM * base else f"{took / base:,.1f} times as long"
            parts.append(f"{name}: steps of {_us(base)} take {_us(took)} {fault_words} ({longer})")
    return ". ".join(parts) + "."


def _under_flaps(results: Sequence[Summary]) -> str:
    """Return the comparison, and why eight planes may take longer where nothing fails."""
    said = _compared(results)
    mrc, roce = _steps(results[0]), _steps(results[2])
    if mrc is None or roce is None or mrc <= roce:
        return said
    return (
        f"{said} Without flaps MRC's steps are longer because the small messages of a ring wait for one another, "
        "and a packet takes eight times as long to leave a port of 100G as one of 800G."
    )


def _failed_t1(results: Sequence[Summary]) -> str:
    """Return what the same comparison says, with the fault's own words."""
    said = _compared(results, ", no fault", "when a T1 fails")
    return f"{said} RoCE's routing reacts after {_us(REROUTE_US)} here; the default is 100 ms."


_PLANE_COUNT = "fabric.planes.0.count"
QUESTIONS = {
    each.name: each
    for each in (
        Question(
            "planes", "How many planes at the same NIC rate?",
            lambda gpus: _base(gpus, exchange=True), _planes, _best_of(_PLANE_COUNT, "{:,} planes", "mean"),
        ),
        Question("flaps", "How many flapping links does a step survive?", _base, _flapping, _survived),
        Question(
            "evs", "How many EVs should a queue pair have?",
            lambda gpus: _base(gpus, exchange=True), _evs, _best_of("transport.settings.evs", "{:,} EVs", "p99"),
        ),
        Question(
            "loss-threshold", "After how many losses should an EV be taken out of use?",
            _base, _loss, _best_of("transport.settings.loss_threshold", "a loss threshold of {:,}", "p99"),
        ),
        Question(
            "window", "How large may the congestion window become?",
            lambda gpus: _base(gpus, exchange=True), _window,
            _best_of("transport.settings.max_cwnd", "at most {:,} bytes", "p99"),
        ),
        Question(
            "roce", "MRC on eight planes or RoCE on one, under background flaps?",
            lambda gpus: _base(gpus, steps=5 if gpus < 4096 else 2), _transports, _under_flaps,
        ),
        Question(
            "t1", "What does a failed T1 cost, with MRC and with RoCE?",
            lambda gpus: _base(gpus, steps=8 if gpus < 4096 else 4), _lost_t1, _failed_t1,
        ),
    )
}  # fmt: skip
