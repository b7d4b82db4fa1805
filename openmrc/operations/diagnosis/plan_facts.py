"""The figures of a probe plan as a command prints them: probes, load, certificate."""

from typing import Any

import msgspec
import numpy as np

from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.certificate import Certificate, certify
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.probe_plan import PROBE_BYTES, ProbeKind, ProbeSet, plan_fabric, probe_path
from openmrc.units import PS_PER_S, PS_PER_US


def plan_facts(topology: Topology) -> dict[str, Any]:
    """Return the plan's size, its load and what it tells apart; planes of equal shape are certified once."""
    planes = plan_fabric(topology)
    certificates: dict[int, Certificate] = {}
    for probes in planes:
        if id(probes.links) not in certificates:
            certificates[id(probes.links)] = certify(PlaneParts(topology, probes.shape), probes)
    found = list(certificates.values())
    return {
        "fabric": topology.fabric.name,
        "nics": topology.nics,
        "planes": len(planes),
        "probes": sum(map(len, planes)),
        "by_kind": {kind.name.lower(): sum(int((each.kind == kind).sum()) for each in planes) for kind in ProbeKind},
        "load": _load(topology, planes),
        "certificate": {
            "single faults": all(each.singles_proven for each in found),
            "pairs of directed links": all(each.pairs_proven for each in found),
            "by plane": msgspec.to_builtins(found),
        },
    }


def _load(topology: Topology, planes: list[ProbeSet]) -> dict[str, Any]:
    """Return the busiest NIC's probes and the busiest links' share of their rate."""
    sent = np.zeros(topology.nics)
    share, most = 0.0, 0.0
    for probes in planes:
        rate = PS_PER_S / probes.period
        sent += np.bincount(probes.source, rate, minlength=topology.nics)
        on = probes.links >= 0
        each = np.bincount(probes.links[on], np.broadcast_to(rate[:, None], on.shape)[on])
        first = probes.shape.host_up
        bits = each * PROBE_BYTES * 8
        share = max(share, float((bits / topology.link_rate[first : first + len(bits)]).max()))
        most = max(most, float(each.max()))
    return {
        "probes_per_second_of_a_nic": round(float(sent.max())),
        "packets_per_second_of_a_link": round(most),
        "bytes_of_a_probe": PROBE_BYTES,
        "percent_of_a_link": round(100 * share, 4),
    }


def probes_of(topology: Topology, nic: int) -> list[dict[str, Any]]:
    """Return the probes that one NIC sends, with their carriers and times."""
    plan, found = usid_plan(topology), []
    for probes in plan_fabric(topology):
        period, phase = probes.period, probes.phase
        for row in np.flatnonzero(probes.source == nic):
            way = probe_path(plan, probes, int(row))
            found.append(
                {
                    "plane": probes.shape.plane,
                    "kind": ProbeKind(int(probes.kind[row])).name.lower(),
                    "path": [topology.name(int(node)) for node in way.nodes],
                    "carrier": way.address,
                    "every_us": int(period[row]) / PS_PER_US,
                    "phase_us": round(int(phase[row]) / PS_PER_US, 3),
                }
            )
    return found
