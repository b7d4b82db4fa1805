"""A probe plan as text: one sentence that says which faults it tells apart, then its size, its load and the rest."""

from __future__ import annotations

from typing import Any

from openmrc.programs.columns import name_columns


def plan_text(facts: dict[str, Any], wall_s: float) -> str:
    """Say what a plan (`openmrc.operations.diagnosis.plan_facts`) tells apart, and what it costs."""
    load, kinds = facts["load"], facts["by_kind"]
    sent = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    figures = [
        ("NICs, planes", f"{facts['nics']:,}, {facts['planes']}"),
        ("probes", f"{facts['probes']:,} ({sent})"),
        ("a NIC sends", f"{load['probes_per_second_of_a_nic']:,} probes a second"),
        ("a link carries", f"{load['packets_per_second_of_a_link']:,} packets a second of "
         f"{load['bytes_of_a_probe']} bytes at most, {load['percent_of_a_link']} % of its rate"),
        ("took", f"{wall_s:.2f} s"),
    ]  # fmt: skip
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
