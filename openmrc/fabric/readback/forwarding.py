"""What a switch does with packets, as read back: entries that work, and ports at which it can be reached.

An entry works when everything it stands on is there: a route its port and the neighbour behind it, a uSID its locator.
What does not work is left out, with the reason, so that a proof of these entries is a proof of what is installed.
"""

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.options import LEAST_MTU
from openmrc.fabric.export.view import PortName, SwitchView

UNKNOWN_PORT = 1 << 20  # of an entry that names a nonexistent port
Obstacles = Iterator[tuple[str | None, str]]  # port, and why it does not forward as planned; None stands for all


@dataclass
class Forwarding:
    """The working entries of a switch, and the reasons why others do not work."""

    entries: list[tuple[int, int, int]] = field(default_factory=list)  # upper 48 bits of the prefix, action, port
    silent: set[int] = field(default_factory=set)  # ports whose address differs from the planned one
    dead: list[str] = field(default_factory=list)
    longer: dict[int, str] = field(default_factory=dict)  # upper 48 bits -> a longer prefix that takes their packets

    def working(self) -> tuple[list[tuple[int, int, int]], list[str]]:
        """Return the entries without those that a longer prefix takes packets from, and all reasons."""
        kept = [entry for entry in self.entries if entry[0] not in self.longer]
        taken = dict.fromkeys(upper for upper, _, _ in self.entries if upper in self.longer)
        whys = [f"{ipaddress.IPv6Address(upper << 80)}/48: a longer prefix: {self.longer[upper]}" for upper in taken]
        return kept, [*dict.fromkeys(self.dead), *whys]


class Installing:
    """Collects the entries of a dump, and keeps the working ones."""

    def __init__(self, switch: SwitchView, port_name: PortName) -> None:
        self.switch = switch
        self.found = Forwarding()
        self.ports = {port_name(port): port.number for port in switch.layout.ports}
        self._down: dict[int, str] = {}
        self._others = switch.others.difference(prefix for prefix, _, _ in switch.entries) if switch.others else ()

    def down(self, port: int, why: str) -> None:
        """Record that a port is down."""
        self._down.setdefault(port, why)
        self.found.silent.add(port)

    def obstruct(self, obstacles: Obstacles) -> str:
        """Take ports out of service; return why all of them are, or an empty string."""
        every = ""
        for name, why in obstacles:
            every = every or (why if name is None else "")
            for number in self.ports.values() if name is None else [self.ports[name]]:
                self.down(number, why)
        return every

    def own(self, prefix: str, why: str = "") -> None:
        """Add one of the switch's own uSIDs."""
        self._take(prefix, Action.UN, -1, why)

    def out(self, prefix: str, action: Action, interface: str, via: str | None, why: str = "") -> None:
        """Add a route or a shifting downlink; `via` is the next hop's address, None if the dump has none."""
        port = self.ports.get(interface, UNKNOWN_PORT)
        if not why and port in self._down:
            why = self._down[port]
        if not why and port != UNKNOWN_PORT and via is not None and not self._is_peer(via, port):
            why = f"next hop {via} is not behind {interface}" if via else f"no next hop behind {interface}"
        self._take(prefix, action, port, why)

    def leads_elsewhere(self, prefix: str, action: str) -> None:
        """Record a route that is not one of the plan's kinds: it delivers nothing."""
        if prefix in self._others:
            return
        self.found.dead.append(f"{prefix}: {action}")
        self._note_longer(prefix, action)

    def _note_longer(self, prefix: str, action: str) -> None:
        network = _network(prefix)
        if network is not None and network.prefixlen > 48 and prefix != f"{self.switch.loopback}/128":
            self.found.longer.setdefault(int(network.network_address) >> 80, f"{prefix} {action}")

    def _is_peer(self, via: str, port: int) -> bool:
        """Return whether an address is the neighbour's on the cable, or the identity of a NIC."""
        is_nic = self.switch.facing[port][0] < self.switch.plan.topology.nics
        return via == self.switch.peer_addresses[port] or (is_nic and via == self.switch.peer_identity(port))

    def _take(self, prefix: str, action: Action, port: int, why: str) -> None:
        if prefix in self._others:
            return
        upper = _upper(prefix)
        if why or upper is None:
            self.found.dead.append(f"{prefix} {action.name.lower()}: {why or 'not a uSID of 48 bits'}")
            self._note_longer(prefix, action.name.lower())
        else:
            self.found.entries.append((upper, int(action), port))


@lru_cache(maxsize=1 << 17)  # all switches have the same few prefixes
def _upper(prefix: str) -> int | None:
    """Return the upper 48 bits of a /48; None for any other text."""
    network = _network(prefix)
    return int(network.network_address) >> 80 if network is not None and network.prefixlen == 48 else None


def _network(prefix: str) -> ipaddress.IPv6Network | None:
    try:
        return ipaddress.IPv6Network(prefix)
    except ValueError:
        return None


def network_of(prefix: str, source: str = "dump") -> ipaddress.IPv6Network:
    """Parse a prefix, a bare address as /128; ConfigError if it is invalid."""
    try:
        return ipaddress.IPv6Network(prefix, strict=False)
    except ValueError:
        raise ConfigError(f"{source}: {prefix!r} is not an IPv6 prefix") from None


def in_blocks(switch: SwitchView) -> Callable[[str], bool]:
    """Return the function that decides whether a prefix contains or is in a uSID block of the fabric."""
    return partial(_touches, tuple(sids.block for sids in switch.plan.planes))


@lru_cache(maxsize=1 << 17)
def _touches(blocks: tuple[int, ...], prefix: str) -> bool:
    try:
        network = ipaddress.IPv6Network(prefix, strict=False)
    except ValueError:
        return False
    own = (ipaddress.IPv6Network((block << 96, 32)) for block in blocks)
    return network.prefixlen > 0 and any(network.overlaps(block) for block in own)


def mtu_too_small(value: Any) -> bool:
    """Return whether an MTU of a dump is too small for MRC packets."""
    return not str(value).isdigit() or int(value) < LEAST_MTU
