"""The content of `fabric.yaml` as typed, frozen structs; its JSON Schema is published as `schema/fabric.schema.json`.

A regular fabric is a few numbers (`hosts` and `planes`); any other graph is a list of `nodes` and `links`. Field names
include their units; rates are per link and direction.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from openmrc.fabric.model.port_settings import INTERFACE

Count = Annotated[int, Meta(ge=1, le=1 << 22)]
Uplinks = Annotated[int, Meta(ge=1, le=1 << 16)]  # more switches above than a uSID of 16 bits can name
Amount = Annotated[int, Meta(ge=0, le=1 << 30)]
Gbps = Annotated[float, Meta(gt=0, le=1e6)]
Metres = Annotated[float, Meta(gt=0, le=1e6)]
Sid = Annotated[int, Meta(ge=1, le=0xFFFF)]
PortName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_./:-]*$", max_length=64)]
PortAddress = Annotated[str, Meta(pattern=r"^[0-9a-f:]*(/[0-9]{1,3})?$", max_length=43)]
Mac = Annotated[str, Meta(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")]


class _FabricPart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


class Hosts(_FabricPart, frozen=True, kw_only=True):
    """The machines and their NICs."""

    count: Count  # machines
    nics: Count = 1  # NICs a machine; each NIC has one port in every plane
    gpus: Count | None = None  # GPUs a machine; as many as NICs unless said
    attach: Literal["block", "rail"] = "block"  # rail: NIC r of a machine connects to the T0 of rail r


class Tier(_FabricPart, frozen=True, kw_only=True):
    """The switches of one tier of a plane and the links above them."""

    down: Count | None = None  # ports towards the hosts; of T0: NICs. Above T0 it sets the pod size (three tiers)
    up: Uplinks | None = None  # ports away from the hosts; worked out from `oversubscription` unless said
    oversubscription: Annotated[float, Meta(gt=0, le=1e6)] = 1  # capacity down : up; only used where `up` is not said
    bundle: Uplinks = 1  # parallel links to each switch above
    up_gbps: Gbps | None = None  # rate of a link above; as below unless said
    up_link_ns: Amount = 150  # propagation of a link above; 150 ns are 30 m of fibre
    switch_ns: Amount = 600  # forwarding latency of a switch
    buffer_kb: Amount = 256  # buffer of each port, 1,024 bytes each; 0: no limit
    radix: Count | None = None  # ports of the switch model; more than these are refused


class Plane(_FabricPart, frozen=True, kw_only=True):
    """One plane, or `count` identical planes; the tiers present set its height."""

    t0: Tier
    t1: Tier | None = None
    t2: Tier | None = None
    count: Annotated[int, Meta(ge=1, le=64)] = 1
    host_gbps: Gbps  # rate of a NIC's port in this plane
    host_link_ns: Amount = 50  # propagation between NIC and T0; 50 ns are 10 m
    nic_buffer_kb: Amount = 0  # send buffer of the NIC's port; 0: no limit


class Sites(_FabricPart, frozen=True, kw_only=True):
    """Split the hosts over two sites; the top switches of a plane connect to their counterparts over long links."""

    count: Annotated[int, Meta(ge=2, le=2)] = 2
    links: Uplinks = 1  # long links of each top switch
    gbps: Gbps
    link_us: Annotated[float, Meta(ge=0, le=1e6)]  # propagation of a long link; 5 us a kilometre
    buffer_kb: Amount = 0  # buffer of the port onto the long link; 0: no limit


class ScaleUp(_FabricPart, frozen=True, kw_only=True):
    """The domains in which GPUs have their own network, such as a rack connected by NVLink."""

    gpus: Count  # GPUs a domain; those of whole NICs
    gbps: Gbps  # of one GPU, each direction, payload
    latency_ns: Annotated[int, Meta(ge=1, le=1 << 30)] = 500  # one way, from GPU to GPU


class Usid(_FabricPart, frozen=True, kw_only=True):
    """The uSIDs (RFC 9800, F3216): a /32 block per plane or for all, one range of 16-bit values per tier."""

    block: str = "fcbb:bb00"  # of plane 0; the next planes follow
    blocks: tuple[str, ...] = ()  # or one a plane, in order
    shared: bool = False  # one block for all planes, whose number is in every uSID (arXiv 2605.04333, figure 3)
    t0: Sid = 0x1000  # first value of each range: the tier is the first hexadecimal digit
    t1: Sid = 0x2000
    t2: Sid = 0x3000
    host: Sid = 0xE000  # downlinks, local to a T0; 0xE000 and up is the usual local block
    nic: Sid = 0xD000  # the NIC's own uSID if `downlink` is ua and a path has no room for its T0 and port
    downlink: Literal["route", "ua"] = "route"  # ua shifts once more on the last hop and takes one more uSID


class Reach(_FabricPart, frozen=True, kw_only=True):
    """Transceivers up to a length; the name is completed by lanes and rate."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9+]+$")]
    up_to_m: Metres


class Plant(_FabricPart, frozen=True, kw_only=True):
    """Racks, floor and cages: the locations of devices, and their cables and transceivers.

    Machines and switches have separate racks. Network racks are in the middle rows, machines on both sides.
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
    # Interface name of a machine's port; Linux allows 15 characters (IFNAMSIZ).
    interface: Annotated[str, Meta(pattern=r"^([A-Za-z0-9_.-]|\{nic\}|\{plane\})+$", max_length=40)] = INTERFACE


NOT_A_CLOS = "a list of nodes and links, such as a dragonfly, is not a Clos of planes"  # so it has no address plan


class IrregularNode(_FabricPart, frozen=True, kw_only=True):
    """Name one node of an irregular fabric."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    kind: Literal["nic", "switch"]
    tier: Annotated[int, Meta(ge=0, le=15)] = 0  # of a switch
    plane: Annotated[int, Meta(ge=0, le=63)] = 0  # of a switch
    switch_ns: Amount = 600


class IrregularLink(_FabricPart, frozen=True, kw_only=True):
    """A cable between two nodes of an irregular fabric; ports are numbered in the order of the list."""

    a: str
    b: str
    gbps: Gbps
    link_ns: Amount = 150
    buffer_kb: Amount = 256
    count: Count = 1  # parallel links


class FoundDevice(_FabricPart, frozen=True, kw_only=True):
    """What a NIC or switch of a fabric that exists is called and answers to; what is left out is as planned."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    ports: tuple[PortName, ...] = ()  # interface names, by port number; empty: no cable
    addresses: tuple[PortAddress, ...] = ()  # with prefix length, by port number; one stands for all ports
    macs: tuple[Mac, ...] = ()  # by port number, of a NIC by plane; one stands for all ports
    usids: tuple[Sid, ...] = ()  # of a switch: one for each parallel link that leads to it
    downlinks: tuple[Sid, ...] = ()  # of a T0: by port number
    others: tuple[Sid, ...] = ()  # of its plane's block, that a switch has for what is no path of the fabric


class Fabric(_FabricPart, frozen=True, kw_only=True):
    """The whole `fabric.yaml`."""

    name: str
    hosts: Hosts | None = None
    planes: tuple[Plane, ...] = ()
    sites: Sites | None = None
    scale_up: ScaleUp | None = None
    usid: Usid = Usid()
    plant: Plant = Plant()
    nodes: tuple[IrregularNode, ...] = ()
    links: tuple[IrregularLink, ...] = ()
    found: tuple[FoundDevice, ...] = ()  # NICs, then plane by plane the T0s, T1s and T2s

    @property
    def is_regular(self) -> bool:
        """Whether numbers, rather than a list of links, describe it."""
        return not self.nodes

    def planes_one_by_one(self) -> tuple[Plane, ...]:
        """Return one entry per plane, with groups of planes expanded."""
        return tuple(plane for plane in self.planes for _ in range(plane.count))
