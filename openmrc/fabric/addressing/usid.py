"""The uSIDs of the switches, and the IPv6 address of every path.

F3216 (RFC 9800): a 32-bit block, then up to six 16-bit uSIDs, one for each hop that consumes one. Each plane has its
own block, so a packet can only match the tables of its plane. The first digit of a uSID gives its kind:

  1xxx  a T0      2xxx  a T1      3xxx  a T2      exxx  a downlink of the T0 before it      d000  any NIC

  fcbb:bb02:1003:2005:1007:e001:1007::   plane 2, in at T0 3, up to T1 5, down to T0 7, out of its port 1

With `usid.shared` all planes have one block, and the bits below the first digit of each uSID are the plane's number.

A fabric that exists (`found` in `fabric.yaml`) has its own values instead, read from a table.

Downlink numbers repeat from T0 to T0. The part after the downlink's uSID, which no switch examines, identifies the NIC:
the uSID of its T0 and, if the T0 shifts the downlink away, that of the downlink again. The address that remains on
arrival thus belongs to one NIC only (`nic_address`), if there is room for it (`is_unique`).

Parallel links have a uSID each: a switch owns as many aliases as there are parallel links to it, and the alias selects
the link. T1 numbers have gaps so that a pod starts at a power of two, T2 numbers so that a column does; the bits of an
EV can then be copied into a field. `fabric.yaml` (`usid`) can change blocks, ranges and the kind of downlinks.
"""

import dataclasses
import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from openmrc.base.yaml_file import Where
from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.model.description import NOT_A_CLOS, Usid
from openmrc.fabric.model.shape import IntOrInts, PlaneShape, finder
from openmrc.fabric.model.topology import Topology

DEEPEST = 6  # uSIDs that fit after the block
_GROUPS = 8  # of 16 bits in an IPv6 address
_REST = ("", ":0", *["::"] * 6)  # by the number of groups that are 0, as RFC 5952 writes them


@dataclass(frozen=True)
class FoundSids:
    """The uSIDs of a plane of a fabric that exists."""

    tiers: tuple[Ints, ...]  # of T0s, T1s, T2s: a row for each switch, a column for each parallel link
    downlinks: Ints  # a row for each T0, a column for each port towards a NIC


@dataclass(frozen=True)
class PlaneSids:
    """Number the uSIDs of one plane."""

    shape: PlaneShape
    block: int  # upper 32 bits of every address of the plane
    t0: int  # first value of each range
    t1: int
    t2: int
    host: int
    nic: int  # uSID of any NIC if downlinks shift and no room is left for more; 0: they do not shift
    t0_aliases: int
    t1_aliases: int
    t2_aliases: int
    t1_step: int  # values from one T1 of a pod to the next
    t1_pod: int  # values from one pod's first T1 to the next's
    t2_column: int
    found: FoundSids | None = field(default=None, compare=False)

    def t0_sid(self, t0: IntOrInts, alias: IntOrInts) -> IntOrInts:
        """Return a T0's uSID; the alias is the link of the bundle that leads to it."""
        if self.found:
            return _at(self.found.tiers[0], t0, alias)
        return self.t0 + t0 * self.t0_aliases + alias

    def t1_sid(self, t1: IntOrInts, alias: IntOrInts) -> IntOrInts:
        """Return a T1's uSID."""
        if self.found:
            return _at(self.found.tiers[1], t1, alias)
        pod, position = t1 // self.shape.t1_per_pod, t1 % self.shape.t1_per_pod
        return self.t1 + pod * self.t1_pod + position * self.t1_step + alias

    def t2_sid(self, t2: IntOrInts, alias: IntOrInts) -> IntOrInts:
        """Return a T2's uSID; T2s of one column, met by the T1s of one position, stand together."""
        if self.found:
            return _at(self.found.tiers[2], t2, alias)
        row, column = t2 // self.shape.t1_per_pod, t2 % self.shape.t1_per_pod
        return self.t2 + column * self.t2_column + row * self.t2_aliases + alias

    def sid(self, tier: int, index: IntOrInts, alias: IntOrInts) -> IntOrInts:
        """Return the uSID of a switch of a tier."""
        return (self.t0_sid, self.t1_sid, self.t2_sid)[tier](index, alias)

    @property
    def aliases(self) -> tuple[int, int, int]:
        """Return how many uSIDs a T0, a T1 and a T2 have."""
        return self.t0_aliases, self.t1_aliases, self.t2_aliases

    def downlink_sid(self, t0: IntOrInts, port: IntOrInts) -> IntOrInts:
        """Return the uSID of a T0's port towards a NIC."""
        if self.found:
            return _at(self.found.downlinks, t0, port)
        return self.host + port

    def ranges(self) -> list[tuple[str, int, int]]:
        """Return (name, first value, values) of every range in use; of a fabric that exists, there may be gaps."""
        shape = self.shape
        if self.found:
            every = [*zip(("t0", "t1", "t2"), self.found.tiers, strict=True), ("host", self.found.downlinks)]
            return [(name, int(sids.min()), int(np.ptp(sids)) + 1) for name, sids in every if sids.size]
        used = [("t0", self.t0, shape.t0_count * self.t0_aliases), ("host", self.host, shape.t0_down)]
        if shape.tiers > 1:
            used.append(("t1", self.t1, shape.pods * self.t1_pod))
        if shape.tiers > 2:
            used.append(("t2", self.t2, shape.t1_per_pod * self.t2_column))
        if self.nic:
            used.append(("nic", self.nic, 1))
        return used

    @property
    def is_unique(self) -> bool:
        """Whether the longest path leaves room to identify the NIC."""
        return self._consumed + (2 if self.nic else 1) <= DEEPEST

    @property
    def _consumed(self) -> int:
        """Count the uSIDs that the switches of the longest path consume."""
        return (1, 3, 5)[self.shape.tiers - 1] + (self.shape.sites - 1) + 1

    @property
    def depth(self) -> int:
        """Count the uSIDs of the longest path."""
        return self._consumed + len(self.tail(0, 0))

    def tail(self, t0: IntOrInts, port: IntOrInts) -> list[IntOrInts]:
        """Return the uSIDs after the downlink's, for the NIC on a T0's port."""
        if not self.is_unique:
            return [port * 0 + self.nic] if self.nic else []
        behind = [self.t0_sid(t0, t0 * 0)]
        if self.nic:
            behind.append(self.downlink_sid(t0, port))
        return behind

    def nic_address(self, t0: int, port: int) -> str:
        """Return the remaining address on arrival at the NIC on a T0's port, see `UsidPlan.nic_address`."""
        tail = self.tail(t0, port)
        return address_text(self.block, tail if self.nic else [self.downlink_sid(t0, port), *tail])


def _at(table: Ints, row: IntOrInts, column: IntOrInts) -> IntOrInts:
    """Return cells of a table as the type of the index: numbers of NumPy would overflow in an address."""
    found: Any = table[row, column]
    value: IntOrInts = found if np.ndim(found) else found.item()
    return value


@dataclass(frozen=True)
class UsidPlan:
    """Hold the uSIDs of all planes of a topology."""

    topology: Topology
    planes: tuple[PlaneSids, ...]

    @property
    def depth(self) -> int:
        return max(plane.depth for plane in self.planes)

    def address(self, plane: int, sids: list[int]) -> str:
        """Return the IPv6 address that carries these uSIDs."""
        return address_text(self.planes[plane].block, sids)

    def nic_address(self, plane: int, nic: int) -> str:
        """Return the remaining address on arrival at a NIC: the one that it owns in that plane.

        With `is_unique` no other NIC has it; otherwise NICs on equal ports of different T0s share it, or, where
        downlinks shift, all NICs of the plane.
        """
        shape = self.planes[plane].shape
        return self.planes[plane].nic_address(shape.t0_of(nic), shape.t0_port_of(nic))


def identity(plane: int, nic: int) -> str:
    """Return a NIC's own address, used inside tunnels, outside all uSID blocks; fabrics without uSIDs have it, too."""
    high, low = divmod(nic + 1, 1 << 16)
    return f"fd00{f':{plane:x}' if plane else ''}::{f'{high:x}:' if high else ''}{low:x}"


def address_text(block: int, sids: list[int]) -> str:
    """Write block and uSIDs as an IPv6 address."""
    if len(sids) > DEEPEST:
        raise ConfigError(f"{len(sids)} uSIDs do not fit into one address; {DEEPEST} do")
    groups = [block >> 16, block & 0xFFFF, *sids]
    if 0 not in groups:  # the library takes eight times as long
        return ":".join([f"{group:x}" for group in groups]) + _REST[_GROUPS - len(groups)]
    value = block << 96
    for index, sid in enumerate(sids):
        value |= sid << (80 - 16 * index)
    return str(ipaddress.IPv6Address(value))


def prefix_text(block: int, sid: int) -> str:
    """Write the /48 that a uSID is matched by; neither is 0."""
    return f"{block >> 16:x}:{block & 0xFFFF:x}:{sid:x}::/48"


def usid_plan(topology: Topology, where: Where | None = None) -> UsidPlan:
    """Assign uSIDs to every switch; ConfigError, at the line found by `where`, if that is impossible."""
    where = where or finder(topology.fabric.name)
    if not topology.planes:
        raise ConfigError(f"{where('$.links')}: {NOT_A_CLOS}: it has no uSIDs; it can be shown, cabled and simulated")
    blocks = _blocks(topology, where)
    planes = tuple(_plane(topology, shape, block) for shape, block in zip(topology.planes, blocks, strict=True))
    if topology.fabric.found:
        planes = tuple(dataclasses.replace(plane, found=_found(topology, plane, where)) for plane in planes)
    for plane in planes:
        _check_depth(plane, where)
        if plane.found is None:
            _check_ranges(plane, where)
            _check_plane_bits(topology, plane, where)
    return UsidPlan(topology, planes)


def _blocks(topology: Topology, where: Where) -> list[int]:
    usid, count = topology.fabric.usid, len(topology.planes)
    at = where("$.usid.blocks" if usid.blocks else "$.usid.block")
    if usid.blocks and len(usid.blocks) != count:
        raise ConfigError(
            f"{at}: usid.blocks has {len(usid.blocks)} for {count} planes; give {count}, or `block` alone"
        )
    if usid.shared and usid.blocks:
        raise ConfigError(f"{at}: usid.blocks and usid.shared exclude each other; `block` alone is shared")
    if usid.blocks:
        blocks = [parse_block(text, at) for text in usid.blocks]
    else:
        blocks = [parse_block(usid.block, at) + plane for plane in range(1 if usid.shared else count)]
    for plane, block in enumerate(blocks):
        if block in blocks[:plane]:
            other, free = blocks.index(block), max(blocks) + 1
            overlap = f"planes {other} and {plane} overlap in {block_text(block)}"
            raise ConfigError(f"{at}: usid.blocks: {overlap}; {block_text(free)} is free")
        if not block >> 25 == 0xFC >> 1 and not block >> 29 == 1:
            raise ConfigError(
                f"{at}: usid block {block_text(block)} is neither in fc00::/7 nor in 2000::/3; fcbb:bb00 would do"
            )
    return blocks * count if usid.shared else blocks


def parse_block(text: str, source: str = "fabric") -> int:
    """Return a /32 block as a number; accepts fcbb:bb00, fcbb:bb00:: and fcbb:bb00::/32."""
    plain = text.removesuffix("/32").removesuffix("::")
    try:
        address = int(ipaddress.IPv6Address(plain + "::"))
    except ValueError:
        address = 0
    if not address or address & ((1 << 96) - 1):
        raise ConfigError(f"{source}: usid block {text!r}: expected 32 bits such as fcbb:bb00")
    return address >> 96


def block_text(block: int) -> str:
    return f"{ipaddress.IPv6Address(block << 96)}/32"


def _plane(topology: Topology, shape: PlaneShape, block: int) -> PlaneSids:
    usid, above = topology.fabric.usid, shape.plane * _of_a_plane(topology)
    t0_aliases = max(1, shape.t0_bundle if shape.tiers > 1 else shape.long)
    t1_aliases = max(shape.t0_bundle, shape.t1_bundle, shape.long if shape.tiers == 2 else 1)
    t1_step = _power_above(t1_aliases)
    t1_pod = shape.t1_per_pod * t1_step
    return PlaneSids(
        shape=shape, block=block, t0=usid.t0 + above, t1=usid.t1 + above, t2=usid.t2 + above, host=usid.host + above,
        nic=usid.nic + above if usid.downlink == "ua" else 0,
        t0_aliases=t0_aliases, t1_aliases=t1_aliases, t2_aliases=shape.t1_bundle,
        t1_step=t1_step,
        t1_pod=_power_above(t1_pod) if shape.pods > 1 else t1_pod, t2_column=_power_above(max(1, shape.t1_up)),
    )  # fmt: skip


def _of_a_plane(topology: Topology) -> int:
    """Return how many values of each range are a plane's where all share a block; 0: each has a block."""
    return 0x1000 // _power_above(len(topology.planes)) if topology.fabric.usid.shared else 0


def _check_plane_bits(topology: Topology, plane: PlaneSids, where: Where) -> None:
    """Refuse ranges that would run into the next plane's."""
    room = _of_a_plane(topology)
    for name, _, count in plane.ranges() if room else ():
        if count > room:
            raise ConfigError(
                f"{where('$.usid.shared')}: plane {plane.shape.plane}: usid.{name} needs {count} values, and the bits "
                f"of {len(topology.planes)} planes leave {room}; a block a plane would work"
            )


def _found(topology: Topology, plane: PlaneSids, where: Where) -> FoundSids | None:
    """Return the uSIDs that the devices of a plane have; None if they are those of the plan."""
    shape, found = plane.shape, topology.fabric.found
    devices = found[shape.first_t0 : shape.first_t0 + shape.switches]
    if not any(device.usids or device.downlinks for device in devices):
        return None
    tiers = []
    for tier, (first, count, width) in enumerate(zip(shape.firsts, shape.counts, plane.aliases, strict=True)):
        rows = [
            found[first + index].usids or [plane.sid(tier, index, alias) for alias in range(width)]
            for index in range(count)
        ]
        _check_widths(topology, first, rows, width, "uSIDs for the links that lead to it", where)
        tiers.append(np.array(rows, dtype=np.int64).reshape(count, width))
    ports = [
        found[shape.first_t0 + t0].downlinks or range(plane.host, plane.host + shape.t0_down)
        for t0 in range(shape.t0_count)
    ]
    _check_widths(topology, shape.first_t0, ports, shape.t0_down, "uSIDs for its ports towards NICs", where)
    sids = FoundSids(tuple(tiers), np.array([list(row) for row in ports], dtype=np.int64))
    _check_unlike(topology, shape, sids, where)
    return sids


def _check_widths(
    topology: Topology, first: int, rows: Sequence[Sequence[int]], width: int, what: str, where: Where
) -> None:
    for node, row in enumerate(rows, start=first):
        if len(row) != width:
            at = where(f"$.found[{node}]")
            raise ConfigError(f"{at}: {topology.name(node)} has {len(row)} {what}; {width} would work")


def _check_unlike(topology: Topology, shape: PlaneShape, sids: FoundSids, where: Where) -> None:
    """Refuse one value for two switches of a plane, or for a switch and a downlink, or for two downlinks of a T0."""
    switches = [sid for tier in sids.tiers for sid in tier.ravel().tolist()]
    twice = [sid for sid, count in Counter(switches).items() if count > 1]
    twice += sorted(set(sids.downlinks.ravel().tolist()).intersection(switches))
    twice += [sid for row in sids.downlinks.tolist() for sid, count in Counter(row).items() if count > 1]
    if twice:
        raise ConfigError(
            f"{where('$.found')}: plane {shape.plane} of {topology.fabric.name} has uSID {twice[0]:#x} twice; "
            "each switch and each downlink of a T0 needs its own"
        )


def _power_above(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _check_depth(plane: PlaneSids, where: Where) -> None:
    if plane.depth <= DEEPEST:
        return
    shape = plane.shape
    if plane.nic and plane.depth - 1 <= DEEPEST:
        near = "`usid.downlink: route` needs one less"
    else:
        near = "two tiers a site would work" if shape.sites > 1 else "two tiers would work"
    sites = f" at {shape.sites} sites" if shape.sites > 1 else ""
    raise ConfigError(
        f"{where('$.planes')}: plane {shape.plane} has {shape.tiers} tiers{sites}, a path of {plane.depth} uSIDs; "
        f"an F3216 address holds {DEEPEST}; {near}"
    )


def _check_ranges(plane: PlaneSids, where: Where) -> None:
    """Refuse overlapping ranges: a uSID would be ambiguous."""
    found = _overlap(plane)
    if found is None:
        return
    (name, first, count), (above, start) = found
    what = "the end of 16 bits" if above == "end" else f"usid.{above} = {start:#06x}"
    at = f"{where(f'$.usid.{name}')}: plane {plane.shape.plane}"
    needs = f"usid.{name} = {first:#06x} needs {count} values and runs into {what}"
    raise ConfigError(f"{at}: duplicate uSIDs: {needs}; {_ranges_that_work(plane)}")


def _overlap(plane: PlaneSids) -> tuple[tuple[str, int, int], tuple[str, int]] | None:
    """Return the first range, by value, that overlaps the next, with the next one's name and first value."""
    used = sorted(plane.ranges(), key=lambda each: each[1])
    for each, (above, start, _) in zip(used, [*used[1:], ("end", 0x10000, 0)], strict=True):
        if each[1] + each[2] > start:
            return each, (above, start)
    return None


def _ranges_that_work(plane: PlaneSids) -> str:
    starts = _starts(plane)
    if starts is None:
        shape = plane.shape
        return f"{shape.nics} NICs are too many for one plane's uSIDs; more planes of fewer, bigger T0s would work"
    return "would work: " + ", ".join(f"{name}: {start:#06x}" for name, start in starts.items())


def _starts(plane: PlaneSids) -> dict[str, int] | None:
    """Return first values that keep the ranges apart, each with its own first digit; None if 16 bits are too few."""
    start, starts = 0x1000, {}
    for name, _, count in sorted(plane.ranges(), key=lambda each: ("t0", "t1", "t2", "nic", "host").index(each[0])):
        starts[name] = start
        start += -(-count // 0x1000) * 0x1000
    return starts if start <= 0x10000 else None


def usid_with_room(topology: Topology) -> Usid:
    """Return a fabric's uSID layout, with ranges moved if one of them needs more room than it has."""
    usid = topology.fabric.usid
    planes = [_plane(topology, shape, 0) for shape in topology.planes]
    if all(_overlap(plane) is None for plane in planes):
        return usid
    largest = max(planes, key=lambda plane: sum(count for _, _, count in plane.ranges()))
    return msgspec.structs.replace(usid, **(_starts(largest) or {}))
