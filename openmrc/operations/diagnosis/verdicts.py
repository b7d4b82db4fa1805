"""What the localiser says: the part at fault, how sure it is, on which evidence; and the work order that follows.

Both are plain structs with a JSON form (`msgspec.json.encode`), which pages and commands show.
"""

import csv
from typing import Literal

import msgspec
import numpy as np

from openmrc.fabric.cables.listing import csv_blocks, list_cables
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.elements import PlaneParts

Where = Literal["link", "cable", "switch", "nic", "host"]
Effect = Literal["dead", "lossy", "one size", "late", "slow"]
DEAD_RATE = 0.5  # share of packets lost from which a part counts as dead


class FaultVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A part named faulty; `host` says that the machine, not the network, was late."""

    part: str  # `A>B` a direction, `A<>B` a cable, or a node's name
    kind: Where
    plane: int  # -1: all
    effect: Effect
    confidence: float  # that this part, rather than another, explains the losses; 0..1
    rate: float  # share of packets lost or late at each crossing, as estimated
    evidence_nats: float  # log of how much better the fault explains the losses than chance
    sent: int  # packets that crossed the part in the window; of a dead part, since it died
    lost: int
    window_ps: int
    at_ps: int  # when it was named
    instead: tuple[str, ...] = ()  # other parts that explain the losses nearly as well


class HitEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint that lost packets on paths over a part."""

    host: str
    endpoint: str  # as `mrc ctl list` names it
    program: str  # rank and job, if its process knows them
    counted: int  # delivered and lost packets since the controller began to watch the endpoint
    lost: int


class WorkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict for a technician: each cable that may have to be replaced."""

    verdict: FaultVerdict
    cables: tuple[dict[str, str], ...]  # rows of the cable list: labels, racks, cages, modules of both ends
    more: int  # cables of a switch that are not listed
    hit: tuple[HitEndpoint, ...] = ()  # who lost most first
    last_change: str = ""  # of configuration there, as far as anybody noted one
    times: int = 1  # that the part was named since the order was written: a flapping part has one order
    over_s: float = 0.0  # in which it was
    ticket: str = ""  # its number where orders are sent to
    exchanged: str = ""  # the part whose plug may be exchanged with this one's


_MOST_CABLES = 4


def work_order(parts: PlaneParts, part: int, verdict: FaultVerdict) -> WorkOrder:
    """Return the work order of a verdict about a part."""
    topology: Topology = parts.topology
    links = parts.links_of(part)
    lower = sorted({min(int(link), int(topology.link_reverse[link])) for link in links})
    listed = list_cables(topology, only=np.array(lower[:_MOST_CABLES], dtype=np.int64))
    rows = tuple(csv.DictReader("".join(csv_blocks(listed, "sonic")).splitlines()))
    return WorkOrder(verdict=verdict, cables=rows, more=max(0, len(lower) - _MOST_CABLES))
