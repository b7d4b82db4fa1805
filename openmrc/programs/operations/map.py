"""`mrc map plan` and `mrc map note`, and work orders as text."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from openmrc.base.terminal import counted, name_columns
from openmrc.operations.control.operated import both_ways, operated
from openmrc.operations.diagnosis.plan_facts import plan_facts, probes_of
from openmrc.operations.diagnosis.verdicts import WorkOrder
from openmrc.operations.fleets.state_folder import NotedChange, StateFolder
from openmrc.programs.fabrics.files import FabricFile, answer, load_topology
from openmrc.programs.outcome import Json

_MOST_HIT = 8  # endpoints that are listed


def order_lines(order: WorkOrder) -> list[str]:
    """Say where to go, who was hit and what was changed there last."""
    instead = [("or else", ", ".join(order.verdict.instead))] if order.verdict.instead else []
    if order.exchanged:
        instead.append(("or else", f"its plug and that of {order.exchanged} are exchanged: `mrc fabric cabled` tells"))
    if order.ticket:
        instead.append(("ticket", order.ticket))
    if order.times > 1:
        instead.append(("again", f"named {order.times} times in {order.over_s:.0f} s: it comes and goes"))
    changed = ("changed", order.last_change or "nothing noted")
    return list(name_columns([*_cables(order), *instead, changed, *_hit(order)]))


def _hit(order: WorkOrder) -> Iterator[tuple[str, str]]:
    if not order.hit:
        yield "hit", "no endpoint has lost anything there"
    for place, each in enumerate(order.hit[:_MOST_HIT]):
        program = f", {each.program}" if each.program else ""
        yield "" if place else "hit", f"{each.host} {each.endpoint}{program}: {each.lost:,} of {each.counted:,} packets"
    if len(order.hit) > _MOST_HIT:
        yield "", f"and {counted(len(order.hit) - _MOST_HIT, 'endpoint', 'endpoints')} more"


def _cables(order: WorkOrder) -> Iterator[tuple[str, str]]:
    for cable in order.cables:
        yield "cable", f"{cable['label']}, {cable['gbps']} Gb/s, {cable['length_m']} m"
        yield from (("", _end(cable, side)) for side in "ab")
    if order.more:
        yield "", f"and {counted(order.more, 'cable', 'cables')} more"


def _end(cable: dict[str, str], side: str) -> str:
    """Return where a cable ends: device, rack, port, module; of a fabric that exists, what its files tell."""
    device, rack, unit, interface, cage, lane, module = (
        cable[f"{side}_{name}"] for name in ("device", "rack", "unit", "interface", "cage", "lane", "module")
    )
    place = f", rack {rack} unit {unit}" if rack else ""
    return f"{device}{place}, {interface}{f' (cage {cage} lane {lane}, {module})' if cage else ''}"


def plan_text(facts: dict[str, Any], wall_s: float) -> str:
    """Say what a plan (`openmrc.operations.diagnosis.plan_facts`) tells apart, and what it costs."""
    load, kinds = facts["load"], facts["by_kind"]
    sent = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    figures = [
        ("NICs, planes", f"{facts['nics']:,}, {facts['planes']}"),
        ("probes", f"{facts['probes']:,} ({sent})"),
        ("a NIC sends", f"{load['probes_per_second_of_a_nic']:,} probes a second"),
        (
            "a link carries",
            f"{load['packets_per_second_of_a_link']:,} packets a second of "
            f"{load['bytes_of_a_probe']} bytes at most, {load['percent_of_a_link']} % of its rate",
        ),
        ("took", f"{wall_s:.2f} s"),
    ]
    return "\n".join([_sentence(facts["certificate"]), "", *name_columns(figures)])


def _sentence(certificate: dict[str, Any]) -> str:
    """Say whether each fault of one part, and each pair of faulty directions, leaves a pattern of its own."""
    if not certificate["single faults"]:
        return f"NOT PROVEN: {'; '.join(_exceptions(certificate['by plane'], 'not_crossed', 'groups_not_told_apart'))}."
    single = "every fault of one link, cable or switch is told from every other"
    if certificate["pairs of directed links"]:
        return f"PROVEN: {single}, and so is any pair of faulty directions."
    hidden = "; ".join(_exceptions(certificate["by plane"], "links_two_others_can_hide"))
    return f"PROVEN for single faults: {single}. Pairs of faulty directions are not all told apart: {hidden}."


_EXCEPTIONS = {
    "not_crossed": "no probe crosses {} parts",
    "groups_not_told_apart": "{} groups of parts look alike ({})",
    "links_two_others_can_hide": "{} links can be hidden by two others ({})",
}


def _exceptions(planes: list[dict[str, Any]], *names: str) -> list[str]:
    """Return what does not hold, once for each shape of plane, with examples."""
    found = []
    for plane in planes:
        examples = {
            "groups_not_told_apart": ", ".join(" = ".join(group) for group in plane["examples"]),
            "links_two_others_can_hide": ", ".join(plane["hidden_examples"]),
        }
        found += [
            f"plane {plane['plane']}: " + _EXCEPTIONS[name].format(f"{plane[name]:,}", examples.get(name, ""))
            for name in names
            if plane[name]
        ]
    return found


def plan(
    file: FabricFile,
    nic: Annotated[str, typer.Option("--nic", help="List this NIC's probes: paths, carriers, times.")] = "",
    as_json: Json = False,
) -> None:
    """Choose the probes of a fabric and prove which faults they tell apart."""
    topology = load_topology(file)
    if nic:
        answer({"nic": nic, "probes": probes_of(topology, topology.node_named(nic))}, as_json)
        return
    start = time.perf_counter()
    facts = plan_facts(topology)
    wall_s = round(time.perf_counter() - start, 3)
    if as_json:
        answer({**facts, "wall_s": wall_s}, as_json)
        return
    typer.echo(plan_text(facts, wall_s))
    typer.echo(f"\nThe probes of one NIC: mrc map plan {file} --nic {topology.name(0)}")


def note(
    fabric: Annotated[str, typer.Argument(metavar="FABRIC", help="A lab that is up, or a fabric.yaml with --ctl.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help='p0-t1-03, "p0-t0-00<>p0-t1-03", "plane 1".')],
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="What was changed there.")],
    folder: Annotated[Path | None, typer.Option("--ctl", help="The controller's folder (default: the lab's).")] = None,
    as_json: Json = False,
) -> None:
    """Note a change of configuration, or work, at a part: work orders tell the last one. Drains note themselves."""
    found = operated(fabric, folder)
    links = both_ways(found.plan, target)
    change = NotedChange(at=time.time(), target=target, links=links, what=" ".join(words))
    state = StateFolder(found.sockets)
    state.record("note", target, why=change.what)
    state.note(change)
    answer({"noted": change.what, "at": target, "links": len(links)}, as_json)
