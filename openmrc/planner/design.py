"""One way to connect N NICs: tiers, switches, links, optics, and the effect of each failure.

A design is `planes` x `rails` x `islands` equal Clos networks: a NIC has a port in each plane, each rail has one NIC of
every machine, and islands are separate, where one network cannot hold all NICs. A path crosses 2k - 1 switches.
"""

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import usid_plan, usid_with_room
from openmrc.fabric.model.build import build
from openmrc.fabric.model.clos import MOST_BUILT_TIERS, MOST_TIERS, ClosSize, capacity, network
from openmrc.fabric.model.description import Fabric, Hosts
from openmrc.fabric.model.parts import Parts, Switch


@dataclass(frozen=True)
class Design:
    """A design and all its figures in `mrc plan`."""

    name: str
    nics: int
    nic_gbps: float
    planes: int
    rails: int
    islands: int
    switch: Switch
    network: ClosSize
    optics: int
    watts: float
    cost: float

    @property
    def tiers(self) -> int:
        return self.network.tiers

    @property
    def oversubscription(self) -> float:
        """Return the actual capacity ratio down : up of a T0, at most the requested one."""
        return self.network.oversubscription

    @property
    def max_hops(self) -> int:
        """Count the switches on the longest path."""
        return 2 * self.network.tiers - 1

    @property
    def networks(self) -> int:
        return self.planes * self.rails * self.islands

    @property
    def total_switches(self) -> int:
        return self.networks * sum(self.network.switches)

    @property
    def links(self) -> int:
        return self.networks * sum(self.network.links)

    @property
    def bisection_tbps(self) -> float:
        """Return the capacity between two halves of the NICs, one direction (of each island)."""
        return self.nics / self.islands / 2 * self.nic_gbps / 1000 / max(1.0, self.oversubscription)

    def loss_percent(self) -> dict[str, float]:
        """Return the share of its capacity that a NIC loses by one failure.

        Between switches it is a share of the NIC's capacity in that plane, as published (0.4 % and 3 %); otherwise of
        the NIC's whole capacity.
        """
        plane = 100 / self.planes
        reachable = self.network.up if self.tiers > 1 else 1
        between = 100 / reachable if self.tiers > 1 else 0.0
        t1 = 100 / self.network.spines if self.tiers > 1 else 0.0
        return {
            "nic_link": plane,
            "nic_port": plane,
            "nic_optic": 100.0,
            "t0_t1_link": between,
            "t0": plane,
            "t1": t1,
            "plane": plane,
        }

    def fabric_loss_percent(self, optic_gbps: float) -> dict[str, float]:
        """Return the share of the fabric's capacity lost by one failure."""
        port = 100 / self.nics / self.planes
        t0 = 100 / (self.networks * self.network.switches[0])
        upper = self.tiers > 1
        link = 100 / (self.networks * self.network.links[1]) if upper else 0.0
        per_optic = max(1, round(optic_gbps * self.planes / self.nic_gbps))
        return {
            "nic_link": port,
            "nic_port": port,
            "nic_optic": 100 / self.nics,
            "t0_optic": port * per_optic,
            "t0_t1_link": link,
            "t0": t0,
            "t1": 100 / (self.networks * self.network.switches[1]) if upper else 0.0,
            "plane": 100 / self.planes,
        }

    def fabric(self, name: str, nics_per_host: int = 1) -> Fabric:
        """Return the fabric that builds exactly this design; ConfigError if it is not a single fabric."""
        alone = f"{self.name}: its {self.rails * self.islands} networks are not joined, so each is a fabric of its own"
        if self.network.plane is None:
            raise ConfigError(f"{self.name}: a fabric file has at most {MOST_BUILT_TIERS} tiers, this has {self.tiers}")
        if self.rails * self.islands > 1:
            raise ConfigError(f"{alone}; plan one with --gpus {self.network.ports}")
        if self.nics % nics_per_host:
            near = max(nics_per_host, self.nics // nics_per_host * nics_per_host)
            raise ConfigError(f"{self.nics} NICs do not fill machines of {nics_per_host}; {near} would")
        hosts = Hosts(count=self.nics // nics_per_host, nics=nics_per_host)
        planes = (msgspec.structs.replace(self.network.plane, count=self.planes),)
        fabric = Fabric(name=name, hosts=hosts, planes=planes)
        fabric = msgspec.structs.replace(fabric, usid=usid_with_room(build(fabric)))
        usid_plan(build(fabric))  # refuses what could be drawn, but not numbered
        return fabric

    def as_dict(self, parts: Parts) -> dict[str, Any]:
        """Return the design as `--json` prints it."""
        counts = [self.networks * count for count in self.network.switches] + [0] * MOST_TIERS
        return {
            "name": self.name,
            "nics": self.nics,
            "nic_gbps": self.nic_gbps,
            "planes": self.planes,
            "rails": self.rails,
            "islands": self.islands,
            "switch": self.switch.name,
            "port_gbps": self.nic_gbps / self.planes,
            "radix": self.network.radix,
            "tiers": self.tiers,
            "max_hops": self.max_hops,
            "t0_down": self.network.down,
            "t0_up": self.network.up,
            "oversubscription": round(self.oversubscription, 4),
            "switches": {
                "t0": counts[0], "t1": counts[1], "t2": counts[2], "t3": counts[3], "total": self.total_switches,
            },
            "links": self.links,
            "optics": self.optics,
            "paths": self.planes * self.network.paths,
            "bisection_tbps": self.bisection_tbps,
            "watts": self.watts,
            "cost": self.cost,
            "loss_percent": self.loss_percent(),
            "fabric_loss_percent": self.fabric_loss_percent(parts.optic.gbps),
        }  # fmt: skip


def design(
    name: str,
    nics: int,
    nic_gbps: float,
    switch: Switch,
    parts: Parts,
    *,
    planes: int = 1,
    rails: int = 1,
    tiers: int | None = None,
    oversubscription: float = 1,
) -> Design:
    """Count a design; `tiers` defaults to the fewest that hold all NICs."""
    radix = _radix(nic_gbps, planes, switch)
    if nics % rails:
        raise ConfigError(f"{nics} NICs do not divide over {rails} rails; {nics // rails * rails or rails} would")
    ports = nics // rails
    if tiers is None:
        fits = [k for k in range(1, MOST_TIERS + 1) if capacity(radix, k, oversubscription) >= ports]
        if not fits:
            most = capacity(radix, MOST_TIERS, oversubscription) * rails
            raise ConfigError(f"{nics} NICs need more than {MOST_TIERS} tiers of radix {radix}; {most} would fit")
        tiers = fits[0]
    islands = math.ceil(ports / capacity(radix, tiers, oversubscription))
    one = network(math.ceil(ports / islands), radix, tiers, nic_gbps / planes, oversubscription)
    return _priced(name, nics, nic_gbps, switch, parts, one, (planes, rails, islands))


def _radix(nic_gbps: float, planes: int, switch: Switch) -> int:
    """Return a switch's ports at a plane's rate; ConfigError names numbers of planes that work."""
    port = nic_gbps / planes
    radix = switch.radix(port)
    works = [p for p in (1, 2, 4, 8, 16) if nic_gbps % p == 0 and switch.radix(nic_gbps / p) % 2 == 0]
    works = [p for p in works if switch.radix(nic_gbps / p) >= 2 and switch.tbps * 1000 % (nic_gbps / p) == 0]
    near = ", ".join(map(str, works)) or "none"
    if nic_gbps % planes:
        raise ConfigError(f"a NIC of {nic_gbps:g}G does not divide into {planes} planes; planes that work: {near}")
    if radix < 2:
        raise ConfigError(f"a switch of {switch.name} has {radix} ports of {port:g}G; at least 2 are needed")
    if radix % 2:
        raise ConfigError(
            f"a switch of {switch.name} has an odd radix, {radix} ports of {port:g}G, and cannot be split in halves; "
            f"planes that work: {near}"
        )
    return radix


def _priced(
    name: str, nics: int, nic_gbps: float, switch: Switch, parts: Parts, one: ClosSize, copies: tuple[int, int, int]
) -> Design:
    """Add optics, power and cost."""
    planes, rails, islands = copies
    networks = planes * rails * islands
    per_module = max(1, math.floor(parts.optic.gbps * planes / nic_gbps + 1e-9))
    modules_a_port = max(1, math.ceil(nic_gbps / planes / parts.optic.gbps - 1e-9))

    def modules(ports: int) -> int:
        return math.ceil(ports / per_module) * modules_a_port

    at_hosts = nics * max(1, math.ceil(nic_gbps / parts.optic.gbps - 1e-9))
    fibres = networks * sum(modules(links) for links in one.links)
    optics = at_hosts + networks * (modules(one.links[0]) + sum(2 * modules(links) for links in one.links[1:]))
    switches = networks * sum(one.switches)
    return Design(
        name=name, nics=nics, nic_gbps=nic_gbps, planes=planes, rails=rails, islands=islands, switch=switch,
        network=one, optics=optics,
        watts=switches * switch.watts + optics * parts.optic.watts,
        cost=switches * switch.cost + optics * parts.optic.cost + fibres * parts.fibre.cost,
    )  # fmt: skip
