"""The cause of each training step's length: its last host and flow, and the link at their NICs that lost most.

A step ends when the last host has received its last flow, so every host waits for that flow.
"""

from typing import Any

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import Results
from openmrc.sim.workloads.joined import JoinedTraffic
from openmrc.units import NEVER, PS_PER_US


def waited_for(work: JoinedTraffic, results: Results, topology: Topology) -> list[dict[str, Any]]:
    """Return for each finished step: the last host, its delay after the median host, the last flow, and a link.

    Of several workloads with steps, the first is judged.
    """
    job = work.jobs()[0]
    flows = work.moving[work.workload[work.moving] == job]
    arrived = np.where(results.received[flows] < NEVER, results.received[flows], results.finished[flows])
    step_of = np.array([_step(name) for name in work.labels] or [0], np.int64)
    step = np.where(work.label[flows] >= 0, step_of[work.label[flows]], 0)
    ends = results.finished[work.steps(job)]
    found, begun = [], 0
    for number, end in enumerate(ends.tolist(), 1):
        mine = np.flatnonzero((step == number) & (arrived < NEVER))
        if end < NEVER and len(mine):
            last = _last_flow(work, results, topology, flows[mine], arrived[mine])
            found.append(last | {"step": number, "took_us": (end - begun) / PS_PER_US})
            begun = end
    return found


def _step(label: str) -> int:
    """Return the step that a label such as `step 3: ring_all_reduce` names, or 0."""
    word = label.partition(":")[0].removeprefix("step ")
    return int(word) if label.startswith("step ") and word.isdigit() else 0


def _last_flow(work: JoinedTraffic, results: Results, topology: Topology, flows: Ints, arrived: Ints) -> dict[str, Any]:
    traffic = work.traffic
    done = np.zeros(topology.nics, np.int64)
    np.maximum.at(done, traffic.destination[flows], arrived)
    at = int(np.argmax(arrived))
    flow, host = int(flows[at]), int(traffic.destination[flows[at]])
    link, lost = _worst_link(results, topology, (int(traffic.source[flow]), host))
    return {
        "host": topology.name(host),
        "behind_us": float(arrived[at] - np.median(done[done > 0])) / PS_PER_US,
        "flow": flow,
        "source": topology.name(int(traffic.source[flow])),
        "destination": topology.name(host),
        "part": work.labels[int(work.label[flow])].partition(": ")[2],
        "flow_us": float(arrived[at] - results.started[flow]) / PS_PER_US,
        "link": link,
        "packets_lost": lost,
    }


def _worst_link(results: Results, topology: Topology, nics: tuple[int, int]) -> tuple[str, int]:
    """Return the link of these NICs that lost, dropped or trimmed most in the whole run, and the number of packets."""
    mine = np.flatnonzero(np.isin(topology.link_source, nics) | np.isin(topology.link_destination, nics))
    lost = sum(results.links[name][mine] for name in ("lost", "dropped", "trimmed"))
    link = int(mine[int(np.argmax(lost))])
    ends = (topology.name(int(each[link])) for each in (topology.link_source, topology.link_destination))
    return ">".join(ends), int(np.max(lost))
