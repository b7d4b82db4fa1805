"""Counts and numbering of a regular plane, and the validation of its numbers.

`PlaneShape` computes one plane: the switches of each tier, and the node, link or port of each index, all in O(1).
Everything is an integer, so the same formulas serve Python, NumPy arrays and compiled code.

Geometry
  NIC n connects to T0 `t0_of(n)` at its port `t0_port_of(n)`; block: n // down, rail: one T0 per rail and host group.
  T0 uplink u goes to the T1 at position u // bundle of its pod; u % bundle is the link of the bundle.
  T1 uplink v goes to T2 `(v // bundle) * t1_per_pod + position`: T1s of one position share a column of T2s.
  A site is a whole number of pods. Top switch i of site 0 connects to top switch i of site 1 over `long` links.
  Two tiers are the case of one pod per site.

Ports of a switch: 0 .. down-1 towards the hosts, then the uplinks or long links.
"""

import dataclasses
import difflib
import re
from dataclasses import dataclass
from typing import TypeVar

from openmrc.base.yaml_file import Where
from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.port_settings import check_interface

MOST_NICS = 1 << 22
MOST_PLANES = 64
MOST_LINKS = 1 << 28  # directed: MOST_NICS on eight planes of three tiers have 201 million
IntOrInts = TypeVar("IntOrInts", int, Ints)


@dataclass(frozen=True)
class PlaneShape:
    """Count and number the parts of one regular plane."""

    plane: int
    tiers: int
    sites: int
    nics: int  # of the whole fabric; each has one port here
    nics_per_host: int
    rail: int  # 1 where NICs are attached by rail
    t0_down: int
    t0_up: int
    t0_bundle: int
    t0_per_pod: int
    pods_per_site: int
    t0_per_site: int
    t1_per_pod: int
    t1_up: int
    t1_bundle: int
    t2_per_site: int
    long: int  # long links of a top switch
    first_t0: int = 0  # node numbers
    first_t1: int = 0
    first_t2: int = 0
    host_up: int = 0  # first link of each kind; `x_up` and `x_down` with equal offsets are the two directions
    host_down: int = 0
    fabric_up: int = 0  # T0 -> T1, offset t0 * t0_up + uplink
    fabric_down: int = 0
    core_up: int = 0  # T1 -> T2, offset t1 * t1_up + uplink
    core_down: int = 0
    long_out: int = 0  # top switch of site 0 -> site 1, offset index * long + link
    long_back: int = 0

    @property
    def pods(self) -> int:
        return self.sites * self.pods_per_site

    @property
    def t0_count(self) -> int:
        return self.sites * self.t0_per_site

    @property
    def t1_count(self) -> int:
        return self.pods * self.t1_per_pod

    @property
    def t2_count(self) -> int:
        return self.sites * self.t2_per_site

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of T0s, T1s and T2s."""
        return self.t0_count, self.t1_count, self.t2_count

    @property
    def firsts(self) -> tuple[int, int, int]:
        """Return the nodes of the first T0, T1 and T2."""
        return self.first_t0, self.first_t1, self.first_t2

    @property
    def switches(self) -> int:
        return sum(self.counts)

    @property
    def nics_per_site(self) -> int:
        return self.nics // self.sites

    @property
    def t1_down(self) -> int:
        """Count the ports of a T1 towards the hosts (a last, smaller pod leaves some unused)."""
        return self.t0_per_pod * self.t0_bundle

    @property
    def t2_down(self) -> int:
        return self.pods_per_site * self.t1_bundle

    @property
    def top_per_site(self) -> int:
        """Count the switches of the highest tier in one site: those the long links join."""
        return (self.t0_per_site, self.t1_per_pod, self.t2_per_site)[self.tiers - 1]

    @property
    def paths(self) -> int:
        """Count the paths between the most distant NICs within the plane."""
        return max(1, self.t0_up) * max(1, self.t1_up) * max(1, self.long)

    def t0_of(self, nic: IntOrInts) -> IntOrInts:
        """Return the index of a NIC's T0."""
        site, local = nic // self.nics_per_site, nic % self.nics_per_site
        if self.rail:
            host, rail = local // self.nics_per_host, local % self.nics_per_host
            return site * self.t0_per_site + (host // self.t0_down) * self.nics_per_host + rail
        return site * self.t0_per_site + local // self.t0_down

    def t0_port_of(self, nic: IntOrInts) -> IntOrInts:
        """Return the T0 port to which a NIC connects."""
        local = nic % self.nics_per_site
        if self.rail:
            return local // self.nics_per_host % self.t0_down
        return local % self.t0_down

    def nic_at(self, t0: int, port: int) -> int:
        """Return the NIC on a T0's port, -1 without one."""
        site, local_t0 = divmod(t0, self.t0_per_site)
        if self.rail:
            group, rail = divmod(local_t0, self.nics_per_host)
            local = (group * self.t0_down + port) * self.nics_per_host + rail
        else:
            local = local_t0 * self.t0_down + port
        fits = 0 <= port < self.t0_down and local < self.nics_per_site
        return site * self.nics_per_site + local if fits else -1

    def pod_of(self, t0: IntOrInts) -> IntOrInts:
        """Return the pod of a T0."""
        return t0 // self.t0_per_site * self.pods_per_site + t0 % self.t0_per_site // self.t0_per_pod

    def place_in_pod(self, t0: IntOrInts) -> IntOrInts:
        """Return which T0 of its pod a T0 is."""
        return t0 % self.t0_per_site % self.t0_per_pod

    def t1_above(self, t0: IntOrInts, uplink: IntOrInts) -> IntOrInts:
        """Return the T1 at the other end of a T0's uplink."""
        return self.pod_of(t0) * self.t1_per_pod + uplink // self.t0_bundle

    def t2_above(self, t1: IntOrInts, uplink: IntOrInts) -> IntOrInts:
        """Return the T2 at the other end of a T1's uplink."""
        pod, position = t1 // self.t1_per_pod, t1 % self.t1_per_pod
        site = pod // self.pods_per_site
        return site * self.t2_per_site + uplink // self.t1_bundle * self.t1_per_pod + position


def check(fabric: Fabric, source: str | Where = "fabric") -> None:
    """Refuse a description that cannot be built; the message gives place, reason and a value that works.

    `source` is its name in messages, or finds the line of a place in it.
    """
    where = finder(source)
    if fabric.is_regular:
        if fabric.links:
            raise ConfigError(f"{where('$.links')}: `links` without `nodes`; give both, or `hosts` and `planes`")
        shapes = plane_shapes(fabric, where)
        _check_found(fabric, shapes[0].nics + sum(shape.switches for shape in shapes), where)
        nics, planes = fabric.hosts.nics if fabric.hosts else 1, len(fabric.planes_one_by_one())
        check_interface(fabric.plant.interface, nics, planes, where("$.plant.interface"))
        return
    if fabric.found:
        raise ConfigError(f"{where('$.found')}: `found` is for regular fabrics; a list of `nodes` has its own names")
    if fabric.hosts or fabric.planes or fabric.sites:
        raise ConfigError(
            f"{where('$.nodes')}: `nodes` and `links` stand alone; `hosts`, `planes` and `sites` are for regular ones"
        )
    if not fabric.links:
        raise ConfigError(f"{where('$.nodes')}: `nodes` without `links`; give at least one link")
    _check_domains(fabric, sum(node.kind == "nic" for node in fabric.nodes), 1, where)
    _check_names(fabric, where)
    check_interface(fabric.plant.interface, 1, _most_ports(fabric), where("$.plant.interface"))


def finder(source: str | Where) -> Where:
    """Return the function that locates a place of a description in its file, or names the description only."""
    return (lambda place, said="": source) if isinstance(source, str) else source


def _most_ports(fabric: Fabric) -> int:
    """Return the largest number of links of a NIC, at least 1."""
    used = dict.fromkeys((node.name for node in fabric.nodes if node.kind == "nic"), 0)
    for link in fabric.links:
        for end in {link.a, link.b} & used.keys():
            used[end] += link.count
    return max(1, *used.values())


def _check_found(fabric: Fabric, nodes: int, where: Where) -> None:
    """Refuse a list of devices of another length than the fabric, and duplicate names."""
    if fabric.found and len(fabric.found) != nodes:
        raise ConfigError(f"{where('$.found')}: {len(fabric.found)} devices for {nodes} NICs and switches; {nodes} fit")
    known: set[str] = set()
    for index, device in enumerate(fabric.found):
        if device.name in known:
            raise ConfigError(f"{where(f'$.found[{index}]')}: two devices are called {device.name!r}")
        known.add(device.name)


def _check_names(fabric: Fabric, where: Where) -> None:
    """Refuse duplicate names, and links to unknown nodes."""
    known: set[str] = set()
    for index, node in enumerate(fabric.nodes):
        if node.name in known:
            raise ConfigError(f"{where(f'$.nodes[{index}]')}: two nodes are called {node.name!r}")
        known.add(node.name)
    if all(node.kind != "nic" for node in fabric.nodes):
        raise ConfigError(f"{where('$.nodes')}: no node is a NIC; add a node with `kind: nic`")
    for index, link in enumerate(fabric.links):
        place = where(f"$.links[{index}]")
        for end in (link.a, link.b):
            if end not in known:
                near = difflib.get_close_matches(end, known, 1, 0)
                raise ConfigError(f"{place}: a link names {end!r}, which is not a node; did you mean {near[0]!r}?")
        if link.a == link.b:
            raise ConfigError(f"{place}: a link joins {link.a!r} to itself")


def plane_shapes(fabric: Fabric, source: str | Where = "fabric") -> tuple[PlaneShape, ...]:
    """Return the shape of every plane of a regular fabric, with nodes and links numbered consecutively."""
    where = finder(source)
    if fabric.hosts is None or not fabric.planes:
        missing = "hosts" if fabric.hosts is None else "planes"
        raise ConfigError(
            f"{where('$')}: `{missing}` is missing; a fabric needs `hosts` and `planes`, or `nodes` and `links`"
        )
    _check_hosts(fabric, where)
    if sum(plane.count for plane in fabric.planes) > MOST_PLANES:
        count = sum(plane.count for plane in fabric.planes)
        raise ConfigError(f"{where('$.planes')}: {count} planes; a NIC has at most {MOST_PLANES} ports")
    shapes: list[PlaneShape] = []
    node, link = fabric.hosts.count * fabric.hosts.nics, 0
    for entry, plane in enumerate(fabric.planes):
        for _ in range(plane.count):
            shape = _numbered(_placed(fabric, entry, len(shapes), where), node, link)
            node += shape.switches
            link = shape.long_back + shape.long * shape.top_per_site
            if link > MOST_LINKS:
                raise ConfigError(f"{where('$.planes')}: {link // 2:,} cables; at most {MOST_LINKS // 2:,} would work")
            shapes.append(shape)
    return tuple(shapes)


def _placed(fabric: Fabric, entry: int, index: int, where: Where) -> PlaneShape:
    """Count a plane; a message about one of its tiers gets that tier's line."""
    try:
        return _counted(fabric, fabric.planes[entry], index, f"plane {index}")
    except ConfigError as error:
        tier = re.search(r"\b(t[012])\b", str(error))
        place = f"$.planes[{entry}]" + (f".{tier[1]}" if tier else "")
        raise ConfigError(f"{where(place)}: {error}") from None


def _check_hosts(fabric: Fabric, where: Where) -> None:
    hosts = fabric.hosts
    assert hosts is not None
    source = where("$.hosts")
    gpus = hosts.gpus or hosts.nics
    if gpus % hosts.nics:
        near = max(hosts.nics, gpus // hosts.nics * hosts.nics)
        raise ConfigError(f"{source}: hosts.gpus = {gpus} do not spread over {hosts.nics} NICs; {near} would")
    if fabric.sites and hosts.count % fabric.sites.count:
        raise ConfigError(f"{source}: hosts.count = {hosts.count} is odd and cannot be split; {hosts.count + 1} can")
    if hosts.count * hosts.nics > MOST_NICS:
        raise ConfigError(f"{source}: {hosts.count * hosts.nics} NICs are more than {MOST_NICS}, which would work")
    _check_domains(fabric, gpus * hosts.count, gpus // hosts.nics, where)


def _check_domains(fabric: Fabric, gpus: int, of_nic: int, where: Where) -> None:
    """Refuse scale-up domains that leave GPUs over or split the GPUs of a NIC."""
    if fabric.scale_up is None:
        return
    source, size = where("$.scale_up"), fabric.scale_up.gpus
    if size % of_nic:
        near = max(of_nic, size // of_nic * of_nic)
        raise ConfigError(f"{source}: scale_up.gpus = {size} parts the {of_nic} GPUs of a NIC; {near} would not")
    if gpus % size:
        fits = f"{gpus // size * size} or {(gpus // size + 1) * size} GPUs would fit"
        raise ConfigError(f"{source}: scale_up.gpus = {size} does not divide the fabric's {gpus} GPUs; {fits}")


def _counted(fabric: Fabric, plane: Plane, index: int, where: str) -> PlaneShape:
    hosts = fabric.hosts
    assert hosts is not None
    sites = fabric.sites.count if fabric.sites else 1
    down = plane.t0.down
    if down is None:
        raise ConfigError(f"{where}: t0.down (NICs a T0) is missing")
    if plane.t2 and not plane.t1:
        raise ConfigError(f"{where}: t2 without t1; tiers are named from the bottom")
    tiers = 3 if plane.t2 else 2 if plane.t1 else 1
    t0_up = _uplinks(plane.t0, down, plane.host_gbps, where + ": t0") if tiers > 1 else _top(plane.t0, where + ": t0")
    t0_per_site = _t0_count(hosts, sites, down)
    t0_per_pod = _t0_per_pod(plane, tiers, t0_per_site, where)
    pods_per_site = -(-t0_per_site // t0_per_pod)
    t1_up = _t1_uplinks(plane, tiers, t0_per_pod, where)
    t1_bundle = plane.t1.bundle if plane.t1 and tiers > 2 else 1
    t1_per_pod = t0_up // plane.t0.bundle
    shape = PlaneShape(
        plane=index, tiers=tiers, sites=sites, nics=hosts.count * hosts.nics, nics_per_host=hosts.nics,
        rail=int(hosts.attach == "rail"), t0_down=down, t0_up=t0_up, t0_bundle=plane.t0.bundle, t0_per_pod=t0_per_pod,
        pods_per_site=pods_per_site, t0_per_site=t0_per_site, t1_per_pod=t1_per_pod, t1_up=t1_up, t1_bundle=t1_bundle,
        t2_per_site=t1_up // t1_bundle * t1_per_pod, long=fabric.sites.links if fabric.sites else 0,
    )  # fmt: skip
    _check_single_switch(shape, where)
    _check_radix(plane, shape, where)
    return shape


def _t0_count(hosts: Hosts, sites: int, down: int) -> int:
    """Count the T0s of one site; the last may be partly filled."""
    machines = hosts.count // sites
    if hosts.attach == "rail":
        return -(-machines // down) * hosts.nics
    return -(-machines * hosts.nics // down)


def _t0_per_pod(plane: Plane, tiers: int, t0_per_site: int, where: str) -> int:
    """Count the T0s of a pod: all of a site's in two tiers, as many as a T1 has ports for in three."""
    if tiers < 3:
        return t0_per_site
    assert plane.t1 is not None
    if plane.t1.down is None:
        raise ConfigError(
            f"{where}: t1.down (ports of a T1 towards its T0s) is missing; with three tiers it sets the pod"
        )
    return _whole(plane.t1.down, plane.t0.bundle, f"{where}: t1.down", "t0.bundle")


def _t1_uplinks(plane: Plane, tiers: int, t0_per_pod: int, where: str) -> int:
    if plane.t1 is None:
        return 0
    if tiers < 3:
        return _top(plane.t1, where + ": t1")
    below = plane.t0.up_gbps or plane.host_gbps
    return _uplinks(plane.t1, t0_per_pod * plane.t0.bundle, below, where + ": t1")


def _uplinks(tier: Tier, down: int, below_gbps: float, where: str) -> int:
    """Count the uplinks of a switch with a tier above: as given, or from the oversubscription."""
    if tier.up is not None:
        up = tier.up
    else:
        wanted = down * below_gbps / ((tier.up_gbps or below_gbps) * tier.oversubscription)
        up = round(wanted)
        if up < 1 or abs(wanted - up) > 1e-9:
            near = down * below_gbps / ((tier.up_gbps or below_gbps) * max(1, up))
            raise ConfigError(
                f"{where}: oversubscription {tier.oversubscription:g} asks for {wanted:g} uplinks; "
                f"{max(1, up)} uplinks (oversubscription {near:g}) would work"
            )
    _whole(up, tier.bundle, f"{where}: up", "bundle")
    return up


def _top(tier: Tier, where: str) -> int:
    """Refuse uplinks on the highest tier."""
    if tier.up is not None:
        raise ConfigError(f"{where}: up = {tier.up}, but nothing is above; leave `up` out or describe the next tier")
    return 0


def _whole(number: int, divisor: int, what: str, by: str) -> int:
    if number % divisor:
        near = max(divisor, number // divisor * divisor)
        raise ConfigError(f"{what} = {number} is not a multiple of {by} = {divisor}; {near} would work")
    return number // divisor


def _check_single_switch(shape: PlaneShape, where: str) -> None:
    if shape.tiers == 1 and shape.t0_per_site > 1:
        raise ConfigError(
            f"{where}: {shape.t0_per_site} T0s and nothing above to join them; "
            f"describe t1, or t0.down = {shape.nics_per_site} for a single switch"
        )


def _check_radix(plane: Plane, shape: PlaneShape, where: str) -> None:
    """Refuse a switch with more links than ports."""
    extra = [shape.long if shape.tiers == tier else 0 for tier in (1, 2, 3)]
    used = [shape.t0_down + shape.t0_up, shape.t1_down + shape.t1_up, shape.t2_down]
    if plane.t1 and plane.t1.down is not None and shape.t1_down > plane.t1.down:
        room = plane.t1.down // shape.t0_bundle
        raise ConfigError(
            f"{where}: t1.down = {plane.t1.down}, but {shape.t0_per_pod} T0s need {shape.t1_down} ports; "
            f"{room * shape.t0_down * shape.sites} NICs would fit, or add t2"
        )
    for tier, described in enumerate((plane.t0, plane.t1, plane.t2)):
        if described is None or described.radix is None:
            continue
        if described.radix % 2:
            raise ConfigError(f"{where}: t{tier}.radix = {described.radix} is odd; {described.radix - 1} would work")
        ports = used[tier] + extra[tier]
        if ports > described.radix:
            fits = _smaller(shape, tier, described.radix)
            raise ConfigError(f"{where}: a T{tier} needs {ports} ports, t{tier}.radix has {described.radix}; {fits}")


def _smaller(shape: PlaneShape, tier: int, radix: int) -> str:
    """Suggest numbers that fit a switch that is too small."""
    if tier == 0:
        half = radix // 2 // shape.t0_bundle * shape.t0_bundle
        return f"down: {half} and up: {half} would fit"
    if tier == 1 and shape.tiers == 2:
        room = (radix - shape.long) // shape.t0_bundle * shape.t0_down * shape.sites
        return f"{room} NICs would fit, or add t2"
    if tier == 1:
        return f"down: {radix // 2} and up: {radix // 2} would fit"
    room = (radix - shape.long) // shape.t1_bundle * shape.t0_per_pod * shape.t0_down * shape.sites
    return f"{room} NICs would fit"


def _numbered(shape: PlaneShape, node: int, link: int) -> PlaneShape:
    """Give a plane's nodes and links their numbers, starting at `node` and `link`."""
    host, fabric, core = shape.nics, shape.t0_count * shape.t0_up, shape.t1_count * shape.t1_up
    long = shape.long * shape.top_per_site
    firsts = [link]
    for size in (host, host, fabric, fabric, core, core, long):
        firsts.append(firsts[-1] + size)
    return dataclasses.replace(
        shape,
        first_t0=node,
        first_t1=node + shape.t0_count,
        first_t2=node + shape.t0_count + shape.t1_count,
        host_up=firsts[0],
        host_down=firsts[1],
        fabric_up=firsts[2],
        fabric_down=firsts[3],
        core_up=firsts[4],
        core_down=firsts[5],
        long_out=firsts[6],
        long_back=firsts[7],
    )
