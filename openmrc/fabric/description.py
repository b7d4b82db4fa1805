"""A fabric as a person writes it: `fabric.yaml` decoded into typed, frozen structs.

`fabric_file` reads it. A regular fabric is a few numbers (`hosts` and `planes`); any other graph is a list of
`nodes` and `links`. What the numbers add up to is worked out in `shape`, what they look like as arrays in
`topology`, what a switch installs in `tables`. The units stand in the field names; rates are per link and direction.

The JSON Schema of this file is published as `fabric.schema.json` beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=1, le=1 << 22)]
Amount = Annotated[int, Meta(ge=0, le=1 << 30)]
Gbps = Annotated[float, Meta(gt=0, le=1e6)]
Metres = Annotated[float, Meta(gt=0, le=1e6)]
Sid = Annotated[int, Meta(ge=1, le=0xFFFF)]

SCHEMA_FILE = Path(__file__).with_name("fabric.schema.json")


class _Part(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


class Hosts(_Part, frozen=True, kw_only=True):
    """Count the machines and what each brings."""

    count: Count  # machines
    nics: Count = 1  # NICs a machine; each NIC has one port in every plane
    gpus: Count | None = None  # GPUs a machine; as many as NICs unless said
    attach: Literal["block", "rail"] = "block"  # rail: NIC r of a machine goes to the T0 of rail r


class Tier(_Part, frozen=True, kw_only=True):
    """Describe the switches of one tier of a plane and the links above them."""

    down: Count | None = None  # ports towards the hosts; of T0: NICs. Above T0 it sets the pod size (three tiers)
    up: Count | None = None  # ports away from the hosts; worked out from `oversubscription` unless said
    oversubscription: Annotated[float, Meta(gt=0, le=1e6)] = (
        1  # capacity down : capacity up; only used where `up` is not said
    )
    bundle: Count = 1  # parallel links to each switch above
    up_gbps: Gbps | None = None  # rate of a link above; as below unless said
    up_link_ns: Amount = 150  # propagation of a link above; 150 ns are 30 m of fibre
    switch_ns: Amount = 600  # forwarding latency of a switch
    buffer_kb: Amount = 256  # buffer of each port, 1,024 bytes each; 0: no limit
    radix: Count | None = None  # ports of the switch model; more than these are refused


class Plane(_Part, frozen=True, kw_only=True):
    """Describe one plane, or `count` planes alike; the tiers named say how high it is."""

    t0: Tier
    t1: Tier | None = None
    t2: Tier | None = None
    count: Annotated[int, Meta(ge=1, le=64)] = 1
    host_gbps: Gbps  # rate of a NIC's port in this plane
    host_link_ns: Amount = 50  # propagation between NIC and T0; 50 ns are 10 m
    nic_buffer_kb: Amount = 0  # send buffer of the NIC's port; 0: no limit


class Sites(_Part, frozen=True, kw_only=True):
    """Split the hosts over two sites; the top switches of a plane meet their twins over long links."""

    count: Annotated[int, Meta(ge=2, le=2)] = 2
    links: Count = 1  # long links of each top switch
    gbps: Gbps
    link_us: Annotated[float, Meta(ge=0, le=1e6)]  # propagation of a long link; 5 us a kilometre
    buffer_kb: Amount = 0  # buffer of the port onto the long link; 0: no limit


class ScaleUp(_Part, frozen=True, kw_only=True):
    """Describe the domains inside which GPUs have a network of their own, such as a rack joined by NVLink."""

    gpus: Count  # GPUs a domain; those of whole NICs
    gbps: Gbps  # of one GPU, each direction, payload
    latency_ns: Annotated[int, Meta(ge=1, le=1 << 30)] = 500  # one way, from GPU to GPU


class Usid(_Part, frozen=True, kw_only=True):
    """Lay out the uSIDs (RFC 9800, F3216): a /32 block a plane, one range of 16-bit values a tier."""

    block: str = "fcbb:bb00"  # of plane 0; the next planes follow
    blocks: tuple[str, ...] = ()  # or one a plane, in order
    t0: Sid = 0x1000  # first value of each range: the tier is the first hexadecimal digit
    t1: Sid = 0x2000
    t2: Sid = 0x3000
    host: Sid = 0xE000  # downlinks, local to a T0; 0xE000 and up is the usual local block
    nic: Sid = 0xD000  # what a NIC calls itself where `downlink` is ua and a path has no room for its T0 and port
    downlink: Literal["route", "ua"] = "route"  # ua shifts once more on the last hop and takes one uSID more


class Reach(_Part, frozen=True, kw_only=True):
    """Name the transceivers that carry up to a length; lanes and rate are put before and behind the name."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9+]+$")]
    up_to_m: Metres


class Plant(_Part, frozen=True, kw_only=True):
    """Describe racks, floor and cages: where things stand, and which cables and transceivers they take.

    Machines and switches have racks of their own. Network racks stand in the middle rows, machines on both sides.
    """

    rack_units: Count = 48
    hosts_per_rack: Count = 8
    host_units: Count = 4  # height of a machine
    switches_per_rack: Count = 16
    switch_units: Count = 2
    racks_per_row: Count = 64
    rack_pitch_m: Metres = 0.6  # between centres of racks in a row
    row_pitch_m: Metres = 3.0  # between centres of rows
    slack_m: Metres = 1.0  # at each end, beyond the way up to the trays above the racks
    lengths_m: tuple[Metres, ...] = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500)
    # IEEE 802.3 gives DR 500 m, FR 2 km, LR 10 km and ER 40 km; OIF 400ZR 120 km.
    optics: tuple[Reach, ...] = (
        Reach(name="DR", up_to_m=500),
        Reach(name="FR", up_to_m=2000),
        Reach(name="LR", up_to_m=10_000),
        Reach(name="ER", up_to_m=40_000),
        Reach(name="ZR", up_to_m=120_000),
    )
    copper_m: Annotated[float, Meta(ge=0, le=10)] = 0  # up to here passive copper, without transceivers
    cages: Count = 64  # of a switch model: 64 of 8 lanes of 100G are 51.2T
    lanes: Literal[1, 2, 4, 8] = 8  # of a cage
    lane_gbps: Gbps = 100


class Node(_Part, frozen=True, kw_only=True):
    """Name one node of an irregular fabric."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    kind: Literal["nic", "switch"]
    tier: Annotated[int, Meta(ge=0, le=15)] = 0  # of a switch
    plane: Annotated[int, Meta(ge=0, le=63)] = 0  # of a switch
    switch_ns: Amount = 600


class Link(_Part, frozen=True, kw_only=True):
    """Join two nodes of an irregular fabric, both directions alike; ports are numbered in the order of the list."""

    a: str
    b: str
    gbps: Gbps
    link_ns: Amount = 150
    buffer_kb: Amount = 256
    count: Count = 1  # parallel links


class Fabric(_Part, frozen=True, kw_only=True):
    """Hold everything `fabric.yaml` says."""

    name: str
    hosts: Hosts | None = None
    planes: tuple[Plane, ...] = ()
    sites: Sites | None = None
    scale_up: ScaleUp | None = None
    usid: Usid = Usid()
    plant: Plant = Plant()
    nodes: tuple[Node, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def is_regular(self) -> bool:
        """Tell whether numbers rather than a list of links describe it."""
        return not self.nodes

    def planes_one_by_one(self) -> tuple[Plane, ...]:
        """Return one entry a plane, groups of planes spelled out."""
        return tuple(plane for plane in self.planes for _ in range(plane.count))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of `fabric.yaml`."""
    return msgspec.json.schema(Fabric)


def schema_text() -> str:
    """Return the schema as it is published."""
    return msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n"
