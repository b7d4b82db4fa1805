"""Compare a fabric with a larger one: list the additions, and prove that nothing existing changes.

Everything that exists is looked up in the new fabric by its name: every node with its plane and tier, every NIC's
addresses, every table entry (switch, block, uSID, action, port), every cable with both its ports, its rate, its cages
and the rack units at its ends. Any difference is a change. Nothing is sampled.

A fabric of two tiers grows without a change by more machines, on free ports of the last T0 and on new T0s, while T1s
have free ports, names keep their number of digits, and no range of uSIDs moves; by new T1s on free uplinks of T0s; and
by planes after the last one. A T1 that takes links from others (a smaller bundle) is a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Tables, build_tables
from openmrc.fabric.addressing.table_files import entry_text
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.cabling.placement import place
from openmrc.fabric.cabling.ports import place_ports
from openmrc.fabric.model.shape import Ints
from openmrc.fabric.model.topology import LinkTier, Topology

_JOINED = {
    LinkTier.HOST: "NIC - T0",
    LinkTier.FABRIC: "T0 - T1",
    LinkTier.CORE: "T1 - T2",
    LinkTier.LONG: "site - site",
}
MOST_LISTED = 100  # changes listed per kind; all are counted


@dataclass
class Growth:
    """The additions and the changes."""

    machines: int = 0
    nics: int = 0
    switches: dict[str, int] = field(default_factory=dict)  # added, by `plane P tier T`
    cables: dict[str, int] = field(default_factory=dict)  # added, by what they join
    cables_to_move: int = 0  # existing ones that somebody has to unplug: their two ports are not joined any more
    entries_on_existing: int = 0  # entries added to switches that exist
    entries_on_new: int = 0
    switches_with_new_entries: int = 0
    changes: dict[str, int] = field(default_factory=dict)  # by kind; empty: nothing that exists changes
    listed: list[str] = field(default_factory=list)
    links: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # of the new fabric, one a cable added

    @property
    def is_pure(self) -> bool:
        """Tell whether nothing that exists changes."""
        return not self.changes

    def change(self, kind: str, count: int, texts: Iterator[str]) -> None:
        """Note changes of a kind; only as many are written out as are listed."""
        if count:
            self.changes[kind] = count
            self.listed += [f"{kind}: {text}" for _, text in zip(range(MOST_LISTED), texts, strict=False)]


def grow(old: UsidPlan, new: UsidPlan) -> Growth:
    """Compare two fabrics; ConfigError if the second cannot be a growth of the first."""
    return _Comparison(old, new).result()


class _Comparison:
    """Both fabrics, and for each old node its node in the new one, -1 without one."""

    def __init__(self, old: UsidPlan, new: UsidPlan) -> None:
        self.plans = old, new
        self.old, self.new = old.topology, new.topology
        if self.old.nics_per_host != self.new.nics_per_host:
            raise ConfigError(
                f"machines of {self.old.nics_per_host} NICs became machines of {self.new.nics_per_host}: "
                "these are two fabrics, not one that grew"
            )
        self.found = Growth()
        self.node = _same_place(self.old, self.new)
        self.of_new = _inverse(self.node, self.new.nodes)

    def result(self) -> Growth:
        """Return everything."""
        self._nodes()
        self._addresses()
        self._entries(build_tables(self.plans[0]), build_tables(self.plans[1]))
        self._cables()
        self._racks()
        return self.found

    def _nodes(self) -> None:
        gone = np.flatnonzero(self.node < 0)
        self.found.change("removed", len(gone), (self.old.name(node) for node in gone.tolist()))
        kept = np.flatnonzero(self.node >= 0)
        renamed = [node for node in kept.tolist() if self.old.name(node) != self.new.name(int(self.node[node]))]
        pairs = ((self.old.name(node), self.new.name(int(self.node[node]))) for node in renamed)
        self.found.change("renamed", len(renamed), (f"{before} would be {after}" for before, after in pairs))
        self.found.nics = self.new.nics - self.old.nics
        self.found.machines = self.found.nics // self.new.nics_per_host
        added = np.flatnonzero(self.of_new < 0)
        switches = added[added >= self.new.nics]
        where = zip(self.new.node_plane[switches].tolist(), self.new.node_tier[switches].tolist(), strict=True)
        counts = Counter(where)
        self.found.switches = {f"plane {plane} T{tier}": counts[plane, tier] for plane, tier in sorted(counts)}

    def _addresses(self) -> None:
        """Compare each plane's block and what a NIC's address is made of: its T0's uSID and its port there."""
        for before, after in zip(*(plan.planes for plan in self.plans), strict=False):
            nic = np.arange(min(self.old.nics, self.new.nics), dtype=np.int64)
            shapes = before.shape, after.shape
            # The part after the downlink depends on the room in the path, and may be omitted as a whole.
            tails = [len(sids.tail(0, 0)) for sids in (before, after)]
            same = np.full(len(nic), before.block == after.block and before.nic == after.nic and tails[0] == tails[1])
            same &= before.host + shapes[0].t0_port_of(nic) == after.host + shapes[1].t0_port_of(nic)
            same &= before.t0_sid(shapes[0].t0_of(nic), 0) == after.t0_sid(shapes[1].t0_of(nic), 0)
            wrong = np.flatnonzero(~same)
            plane = before.shape.plane
            texts = (self._address_text(plane, each) for each in wrong.tolist())
            self.found.change(f"address on plane {plane}", len(wrong), texts)

    def _address_text(self, plane: int, nic: int) -> str:
        before, after = (plan.nic_address(plane, nic) for plan in self.plans)
        return f"{self.old.name(nic)} is {before}, would be {after}"

    def _entries(self, before: Tables, after: Tables) -> None:
        """Look up every entry of the old tables in the new ones, by switch and uSID."""
        switch = self.node[before.switch]
        match = _lookup(_entry_keys(switch, before), _entry_keys(after.switch.astype(np.int64), after))
        same = match >= 0
        for mine, theirs in ((before.block, after.block), (before.action, after.action), (before.port, after.port)):
            same &= mine == theirs[match]
        lost = np.flatnonzero(~same & (switch >= 0))
        texts = (f"{self.old.name(int(before.switch[row]))}: {entry_text(before, row)}" for row in lost.tolist())
        self.found.change("table entry", len(lost), texts)
        fresh = np.ones(len(after), dtype=bool)
        fresh[match[same]] = False
        on_existing = fresh & (self.of_new[after.switch] >= 0)
        self.found.entries_on_existing = int(on_existing.sum())
        self.found.entries_on_new = int(fresh.sum()) - self.found.entries_on_existing
        self.found.switches_with_new_entries = len(np.unique(after.switch[on_existing]))

    def _cables(self) -> None:
        """Look up every direction of every old cable in the new fabric, by its source node and port."""
        old, new = self.old, self.new
        source, destination = self.node[old.link_source], self.node[old.link_destination]
        match = _lookup(_end_keys(source, old.link_port), _end_keys(new.link_source.astype(np.int64), new.link_port))
        same = (match >= 0) & (new.link_destination[match] == destination)
        same &= old.link_port[old.link_reverse] == new.link_port[new.link_reverse][match]
        self.found.cables_to_move = int((~same & (np.arange(old.links) < old.link_reverse)).sum())
        for mine, theirs in (
            (old.link_rate, new.link_rate),
            (_slot_numbers(old), _slot_numbers(new)),
        ):
            same &= mine == theirs[match]
        same &= same[old.link_reverse]
        lost = np.flatnonzero(~same & (source >= 0) & (destination >= 0))
        lost = lost[lost < old.link_reverse[lost]]
        self.found.change("cable", len(lost), (_cable_text(old, link) for link in lost.tolist()))
        fresh = np.ones(new.links, dtype=bool)
        fresh[match[same]] = False
        self.found.links = np.flatnonzero(fresh & (np.arange(new.links) < new.link_reverse))
        tiers = Counter(new.link_tier[self.found.links].tolist())
        self.found.cables = {_JOINED[LinkTier(tier)]: tiers[tier] for tier in sorted(tiers)}

    def _racks(self) -> None:
        """Compare the rack and unit of everything that is kept."""
        before, after = place(self.old), place(self.new)
        kept = np.flatnonzero(self.node >= 0)
        names = [np.array([rack.name for rack in each.racks], dtype=object) for each in (before, after)]
        there = self.node[kept]
        moved = (names[0][before.rack[kept]] != names[1][after.rack[there]]) | (before.unit[kept] != after.unit[there])
        texts = (
            f"{self.old.name(node)} in {before.racks[int(before.rack[node])].name}" for node in kept[moved].tolist()
        )
        self.found.change("place", int(moved.sum()), texts)


def _cable_text(topology: Topology, link: int) -> str:
    back = int(topology.link_reverse[link])
    ends = (int(topology.link_source[link]), int(topology.link_destination[link]))
    ports = (int(topology.link_port[link]), int(topology.link_port[back]))
    return " to ".join(f"{topology.name(node)}:{port}" for node, port in zip(ends, ports, strict=True))


def _same_place(old: Topology, new: Topology) -> Ints:
    """Return the node of the new fabric with the same plane, tier and number; NICs by their number."""
    if not (old.planes and new.planes):
        raise ConfigError("grow compares fabrics of `hosts` and `planes`; a list of links has no order to grow in")
    found = np.full(old.nodes, -1, dtype=np.int64)
    nics = min(old.nics, new.nics)
    found[:nics] = np.arange(nics)
    for before, after in zip(old.planes, new.planes, strict=False):
        for first, count, first_after, count_after in (
            (before.first_t0, before.t0_count, after.first_t0, after.t0_count),
            (before.first_t1, before.t1_count, after.first_t1, after.t1_count),
            (before.first_t2, before.t2_count, after.first_t2, after.t2_count),
        ):
            both = min(count, count_after)
            found[first : first + both] = np.arange(first_after, first_after + both)
    return found


def _inverse(node: Ints, size: int) -> Ints:
    found = np.full(size, -1, dtype=np.int64)
    kept = np.flatnonzero(node >= 0)
    found[node[kept]] = kept
    return found


def _entry_keys(switch: Ints, tables: Tables) -> Ints:
    """Return a number for each entry's place: a switch has one entry for a uSID; negative without a switch."""
    return np.asarray(switch << 16 | tables.usid.astype(np.int64))


def _end_keys(node: Ints, port: Any) -> Ints:
    """Return a number for each port of each node; negative without a node."""
    return np.asarray(node << 32 | port.astype(np.int64))


def _lookup(wanted: Ints, known: Ints) -> Ints:
    """Return where in `known` each number is; -1 where it is not, or is negative."""
    order = np.argsort(known)
    at = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)]
    return np.where((wanted >= 0) & (known[at] == wanted), at, -1)


def _slot_numbers(topology: Topology) -> Ints:
    """Return cage, lane and speed of the port at the source of each directed link, as one number."""
    ports = place_ports(topology)
    slot = ports.index(topology.link_source.astype(np.int64), topology.link_port.astype(np.int64))
    packed = np.array([(each.cage << 24) + (each.part << 16) + each.parts for each in ports.slots], dtype=np.int64)
    return np.asarray(packed[slot])
