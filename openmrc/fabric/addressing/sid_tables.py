"""The entries of each switch: its own uSIDs, its neighbours' uSIDs, its downlinks.

One entry is one /48: `block:usid::/48`.
  UN     the uSID is this switch's own: shift the stack and look up again
  ROUTE  send it out of a port, unchanged: the uSID is the next switch's, or a downlink
  UA     shift the stack and send it out of a port (downlinks of fabrics with `usid.downlink: ua`)

Columns, one row per entry, in no particular order; 3.1 million rows for 131,072 NICs on 8 planes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.fabric.addressing.usid import PlaneSids, UsidPlan, prefix_text
from openmrc.fabric.model.topology import Topology


class Action(IntEnum):
    UN = 1
    ROUTE = 2
    UA = 3


@dataclass(frozen=True)
class Tables:
    """The entries of many switches as columns."""

    switch: npt.NDArray[np.int32]  # node
    block: npt.NDArray[np.uint32]
    usid: npt.NDArray[np.uint16]
    action: npt.NDArray[np.int8]
    port: npt.NDArray[np.int32]  # of the switch; -1 for UN

    def __len__(self) -> int:
        return len(self.switch)

    def of(self, switch: int) -> Tables:
        """Return the entries of one switch, by uSID."""
        rows = np.flatnonzero(self.switch == switch)
        return self.rows(rows[np.argsort(self.usid[rows], kind="stable")])

    def rows(self, which: Ints | npt.NDArray[np.bool_] | slice) -> Tables:
        return Tables(*(column[which] for column in self.columns()))

    def columns(self) -> tuple[Any, ...]:
        """Return the columns in the order of the fields."""
        return (self.switch, self.block, self.usid, self.action, self.port)


def entry_text(tables: Tables, row: int) -> str:
    """Write an entry as `PREFIX ACTION PORT`, such as `fcbb:bb00:2001::/48 route 5`; `un` has no port."""
    action = Action(int(tables.action[row]))
    port = "" if action == Action.UN else f" {int(tables.port[row])}"
    return f"{prefix_text(int(tables.block[row]), int(tables.usid[row]))} {action.name.lower()}{port}"


def build_tables(plan: UsidPlan) -> Tables:
    """Return the entries of every switch of every plane."""
    return join([part for sids in plan.planes for part in _plane_entries(plan.topology, sids)])


def switch_tables(plan: UsidPlan, switch: int) -> Tables:
    """Return the entries of one switch without building the others' planes."""
    plane = int(plan.topology.node_plane[switch])
    return join(_plane_entries(plan.topology, plan.planes[plane])).of(switch)


def join(parts: list[Tables]) -> Tables:
    return Tables(*(np.concatenate(group) for group in zip(*(part.columns() for part in parts), strict=True)))


def entries(block: int, switch: Ints, usid: Ints, action: Action, port: Ints | int = -1) -> Tables:
    """Return entries that share block and action."""
    size = len(switch)
    return Tables(
        switch=switch.astype(np.int32),
        block=np.full(size, block, dtype=np.uint32),
        usid=usid.astype(np.uint16),
        action=np.full(size, action, dtype=np.int8),
        port=np.broadcast_to(np.asarray(port, dtype=np.int32), size).copy(),
    )


def _plane_entries(topology: Topology, sids: PlaneSids) -> list[Tables]:
    """Return the entries of a plane: of each switch its own uSIDs, its downlinks, and what is at its other cables."""
    shape, top = sids.shape, sids.shape.tiers - 1
    parts = [*_own(sids), _downlinks(sids)]
    for forth, back, width, bundle, tiers in (
        (shape.fabric_up, shape.fabric_down, shape.t0_up, shape.t0_bundle, (1, 0)),
        (shape.core_up, shape.core_down, shape.t1_up, shape.t1_bundle, (2, 1)),
        (shape.long_out, shape.long_back, shape.long, shape.long, (top, top)),
    ):
        alias = np.arange(back - forth, dtype=np.int64) % max(1, width) % max(1, bundle)
        for first, tier in zip((forth, back), tiers, strict=True) if len(alias) else ():
            links = slice(first, first + len(alias))
            there = topology.node_index[topology.link_destination[links]].astype(np.int64)
            usid, port = sids.sid(tier, there, alias), topology.link_port[links].astype(np.int64)
            parts.append(entries(sids.block, topology.link_source[links].astype(np.int64), usid, Action.ROUTE, port))
    return parts


def _own(sids: PlaneSids) -> list[Tables]:
    """Entries by which each switch recognises its own uSIDs, with all aliases."""
    parts, shape = [], sids.shape
    for tier, (first, count, aliases) in enumerate(zip(shape.firsts, shape.counts, sids.aliases, strict=True)):
        if count:
            index, alias = np.divmod(np.arange(count * aliases, dtype=np.int64), aliases)
            parts.append(entries(sids.block, first + index, sids.sid(tier, index, alias), Action.UN))
    return parts


def _downlinks(sids: PlaneSids) -> Tables:
    nic = np.arange(sids.shape.nics, dtype=np.int64)
    port = sids.shape.t0_port_of(nic)
    action = Action.UA if sids.nic else Action.ROUTE
    t0 = sids.shape.t0_of(nic)
    return entries(sids.block, sids.shape.first_t0 + t0, sids.downlink_sid(t0, port), action, port)
