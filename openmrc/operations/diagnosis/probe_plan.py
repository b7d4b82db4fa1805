"""The probe plan: which paths the agents of a fabric send probes over, so that every link is covered and told apart.

Each NIC probes from every port. A loop goes up and comes back to its own NIC: to the T0 (1), to a T1 (2), to a T2. A
one-way probe ends at a NIC of another T0 or pod (3): a loop crosses both directions of a cable and cannot tell them
apart, and a T0's way to a T1 and back is only split by probes that use one half of it.

    T1 k      .--- 2 ---.        3 ----------.
    T0 a   ---|--- 1 ---|--- NIC n           |--- T0 b --- NIC m

Every uplink of every T0 is crossed by `COPIES` loops and `COPIES` one-way probes out and in, each between other NICs,
so that a faulty NIC is not mistaken for a faulty uplink. A row's NICs and T0s follow from its number by shifts, so the
plan of a plane is arithmetic on arrays. Carriers are those of data (`addressing.paths.stops`): a probe takes the same
tables as the packets that it speaks for.

A cable is crossed by a loop about every `PERIOD_PS`; the copies take turns. The phase of a probe depends on its number
only, so agents that start together do not send together, nor after a restart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import Choice, Path, Relation, node_of, path, sid_of, stops
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.addressing.walk import Cabling
from openmrc.fabric.model.description import NOT_A_CLOS
from openmrc.fabric.model.shape import PlaneShape
from openmrc.fabric.model.topology import Topology
from openmrc.units import PS_PER_MS

Links = npt.NDArray[np.int32]

PERIOD_PS = PS_PER_MS  # between two loops over a cable; Clustermapper's published rate
COPIES = 2  # with two, any two faulty links of a T0 of six or more NICs can be told apart
PROBE_BYTES = 40 + 8 + 12 + 16 + 4 + 18 + 20  # IPv6, UDP, BTH, PETH, ICRC; Ethernet with preamble and gap
DATA_BYTES = 4096  # of payload of probes like data, as MRC's largest packets
_GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are evenly spread


class ProbeKind(IntEnum):
    """Shape of a probe's path."""

    LOOP_T0 = 0
    LOOP_T1 = 1
    LOOP_T2 = 2
    ONE_WAY = 3


@dataclass(frozen=True)
class ProbeSet:
    """The probes of one plane, a row each, as columns."""

    shape: PlaneShape
    kind: npt.NDArray[np.int8]
    source: Ints  # NIC
    destination: Ints  # NIC; that of a loop is its source
    relation: npt.NDArray[np.int8]  # addressing.paths.Relation, by which the path climbs
    uplink: Ints  # the choice of the path
    core: Ints
    long: Ints
    links: Links  # directed links in order, numbered from the plane's first (`shape.host_up`); -1 behind the last

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def period(self) -> Ints:
        """Return the time between two packets of each probe, in ps."""
        return np.where(self.kind == ProbeKind.LOOP_T0, 1, COPIES).astype(np.int64) * PERIOD_PS

    @property
    def phase(self) -> Ints:
        """Return when in its period each probe is sent, in ps: spread evenly, whenever an agent starts."""
        share = np.arange(len(self)) * _GOLDEN % 1.0
        return np.asarray(share * self.period).astype(np.int64)

    def crossing(self, links: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return which probes cross one of these links (numbers of the topology)."""
        wanted = np.array(sorted(links), dtype=np.int64)
        crosses = np.isin(self.links + self.shape.host_up, wanted) & (self.links >= 0)
        return np.asarray(crosses.any(axis=1), dtype=bool)


def plan_plane(topology: Topology, plane: int) -> ProbeSet:
    """Choose the probes of a plane; ConfigError for an irregular fabric."""
    if not topology.planes:
        raise ConfigError(
            f"{topology.fabric.name}: {NOT_A_CLOS}: it has no probes; describe it by `hosts` and `planes`"
        )
    shape = topology.planes[plane]
    nic = np.arange(shape.nics, dtype=np.int64)
    parts = [_Rows(ProbeKind.LOOP_T0, Relation.T0, nic, nic, 0)]
    if shape.tiers > 1:
        parts += [part for copy in range(COPIES) for part in _of_uplinks(shape, copy)]
    if shape.tiers > 2:
        parts += [part for copy in range(COPIES) for part in _of_cores(shape, copy)]
    if shape.sites > 1:
        parts += [part for copy in range(COPIES) for part in _of_long_links(shape, copy)]
    return _joined(shape, [part for part in parts if len(part.source)], Cabling(topology))


def plan_fabric(topology: Topology) -> list[ProbeSet]:
    """Choose the probes of every plane; planes of equal shape share their arrays."""
    made: dict[PlaneShape, ProbeSet] = {}
    result = []
    for plane, shape in enumerate(topology.planes):
        kind = _unnumbered(shape)
        if kind not in made:
            made[kind] = plan_plane(topology, plane)
        result.append(dataclasses.replace(made[kind], shape=shape))
    if not result:
        plan_plane(topology, 0)
    return result


def probe_path(plan: UsidPlan, probes: ProbeSet, row: int) -> Path:
    """Return a probe's nodes, ports and carrier."""
    plane = probes.shape.plane
    source, destination = int(probes.source[row]), int(probes.destination[row])
    choice = Choice(plane, int(probes.uplink[row]), int(probes.core[row]), int(probes.long[row]))
    if source != destination:
        return path(plan, source, destination, choice)
    sids, shape = plan.planes[plane], plan.topology.planes[plane]
    t0, port = shape.t0_of(source), shape.t0_port_of(source)
    way = stops(shape, t0, t0, port, Relation(int(probes.relation[row])), choice)
    stack = [*(sid_of(sids, stop) for stop in way), sids.downlink_sid(t0, port), *sids.tail(t0, port)]
    nodes = (source, *(node_of(shape, stop) for stop in way), source)
    return Path(-1, choice, nodes, (plane, *(stop.port for stop in way)), tuple(stack), plan.address(plane, stack))


@dataclass(frozen=True)
class _Rows:
    """Probes of one kind, before their links are known."""

    kind: ProbeKind
    relation: Relation
    source: Ints
    destination: Ints
    uplink: Ints | int
    core: Ints | int = 0
    long: Ints | int = 0


def _unnumbered(shape: PlaneShape) -> PlaneShape:
    """Return a shape without what tells equal planes apart."""
    names = ("plane", "first_t0", "first_t1", "first_t2", "host_up", "host_down", "fabric_up", "fabric_down")
    more = ("core_up", "core_down", "long_out", "long_back")
    return dataclasses.replace(shape, **dict.fromkeys((*names, *more), 0))


class _Homes:
    """The NICs of each T0, by their position."""

    def __init__(self, shape: PlaneShape) -> None:
        home = shape.t0_of(np.arange(shape.nics, dtype=np.int64))
        self.by_home = np.argsort(home, kind="stable")
        self.count = np.bincount(home, minlength=shape.t0_count).astype(np.int64)
        self.first = np.concatenate([[0], np.cumsum(self.count)])

    def nic(self, t0: Ints, position: Ints) -> Ints:
        """Return the NIC at a position, counted around."""
        found: Ints = self.by_home[self.first[t0] + position % np.maximum(1, self.count[t0])]
        return found


def _of_uplinks(shape: PlaneShape, copy: int) -> list[_Rows]:
    """Return the loops to T1s and the one-way probes to other T0s of the pod."""
    homes = _Homes(shape)
    slots = max(shape.t0_up, int(homes.count.max()))  # every uplink and every NIC
    t0, slot = (each.ravel() for each in np.indices((shape.t0_count, slots), dtype=np.int64))
    keep = (slot < np.maximum(shape.t0_up, homes.count[t0])) & (homes.count[t0] > 0)
    t0, slot = t0[keep], slot[keep]
    uplink = slot % shape.t0_up
    around = slot + slot // np.maximum(1, homes.count[t0])  # of a T0 with few NICs: another one for each uplink
    nic = homes.nic(t0, around + copy)
    loops = _Rows(ProbeKind.LOOP_T1, Relation.POD, nic, nic, uplink)
    pod_first = t0 - shape.place_in_pod(t0)
    in_pod = np.minimum(shape.t0_per_pod, shape.t0_per_site - pod_first % shape.t0_per_site)
    shift = 1 + copy % np.maximum(1, in_pod - 1)
    there = pod_first + (t0 - pod_first + shift) % in_pod
    source = homes.nic(t0, around + COPIES + copy)
    apart = COPIES + there % np.maximum(1, homes.count[there] - 2 * COPIES + 1)  # from the NICs of the T0's own loops
    destination = homes.nic(there, around + apart + copy)
    keep = (in_pod > 1) & (homes.count[there] > 0)
    return [loops, _Rows(ProbeKind.ONE_WAY, Relation.POD, source[keep], destination[keep], uplink[keep])]


def _of_cores(shape: PlaneShape, copy: int) -> list[_Rows]:
    """Return the loops to T2s and the one-way probes to other pods of the site, a T0 and an uplink a T1's uplink."""
    homes = _Homes(shape)
    t1, core = (each.ravel() for each in np.indices((shape.t1_count, shape.t1_up), dtype=np.int64))
    pod, position = t1 // shape.t1_per_pod, t1 % shape.t1_per_pod
    uplink = position * shape.t0_bundle + core % shape.t0_bundle
    loop_t0 = _t0_in(shape, pod, core + copy)
    nic = homes.nic(loop_t0, core + position + copy)
    loops = _Rows(ProbeKind.LOOP_T2, Relation.SITE, nic, nic, uplink, core)
    site = pod // shape.pods_per_site
    shift = 1 + copy % max(1, shape.pods_per_site - 1)
    other = site * shape.pods_per_site + (pod % shape.pods_per_site + shift) % shape.pods_per_site
    source = homes.nic(_t0_in(shape, pod, core + COPIES + copy), core + position + COPIES + copy)
    destination = homes.nic(_t0_in(shape, other, core + 2 * COPIES + copy), core + position + 2 * COPIES + copy)
    ends = (each[other != pod] for each in (source, destination, uplink, core))
    return [loops, _Rows(ProbeKind.ONE_WAY, Relation.SITE, *ends)]


def _t0_in(shape: PlaneShape, pod: Ints, place: Ints) -> Ints:
    """Return a T0 of a pod, counted around (the last pod of a site may be smaller)."""
    site, local = pod // shape.pods_per_site, pod % shape.pods_per_site
    count = np.minimum(shape.t0_per_pod, shape.t0_per_site - local * shape.t0_per_pod)
    return np.asarray(site * shape.t0_per_site + local * shape.t0_per_pod + place % count)


def _of_long_links(shape: PlaneShape, copy: int) -> list[_Rows]:
    """Return one-way probes over each long link in both directions; no loop over one fits into a carrier."""
    homes = _Homes(shape)
    top, long = (each.ravel() for each in np.indices((shape.top_per_site, shape.long), dtype=np.int64))
    rows = []
    for site in (0, 1):
        here, there = site * shape.t0_per_site, (1 - site) * shape.t0_per_site
        if shape.tiers == 1:
            source, uplink = homes.nic(top + here, long + copy), top * 0
            destination = homes.nic(top + there, long + copy + 1)
        else:
            source = homes.nic((top + long + copy) % shape.t0_per_site + here, top + copy)
            uplink = top * shape.t0_bundle + long % shape.t0_bundle
            destination = homes.nic((top + long + copy + 1) % shape.t0_per_site + there, top + copy + 1)
        rows.append(_Rows(ProbeKind.ONE_WAY, Relation.FAR, source, destination, uplink, 0, long))
    return rows


def _joined(shape: PlaneShape, parts: list[_Rows], cabling: Cabling) -> ProbeSet:
    """Follow every probe and put the kinds together."""
    ways = [_followed(shape, part, cabling) for part in parts]
    width = max(len(way) for way in ways)
    links = np.full((sum(len(way[0]) for way in ways), width), -1, dtype=np.int32)
    row = 0
    for way in ways:
        for place, link in enumerate(way):
            links[row : row + len(link), place] = link - shape.host_up
        row += len(way[0])
    columns = {
        name: np.concatenate([np.broadcast_to(getattr(part, name), len(part.source)) for part in parts])
        for name in ("source", "destination", "uplink", "core", "long")
    }
    labels = {
        name: np.concatenate([np.full(len(part.source), getattr(part, name), np.int8) for part in parts])
        for name in ("kind", "relation")
    }
    return ProbeSet(shape=shape, links=links, **columns, **labels)


def _followed(shape: PlaneShape, part: _Rows, cabling: Cabling) -> list[Ints]:
    """Return the links of probes of one kind, place by place."""
    choice = Choice(shape.plane, part.uplink, part.core, part.long)  # type: ignore[arg-type]  # columns of choices
    here, there = shape.t0_of(part.source), shape.t0_of(part.destination)
    way = stops(shape, here, there, shape.t0_port_of(part.destination), part.relation, choice)
    plane = np.full_like(part.source, shape.plane)
    return [cabling.link(part.source, plane), *(cabling.link(node_of(shape, stop), stop.port) for stop in way)]
