"""Watch the interfaces of the planes: turn a lost carrier, a removed address or a smaller MTU into port status.

The data path reads link announcements itself (`datapath.loop.link_state`); here is what needs a dump.
"""

import logging
import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

import numpy as np

from openmrc.core.rows import column
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.tables import Engine
from openmrc.live.datapath.loop.link_state import Fault, set_fault
from openmrc.live.host import netlink
from openmrc.live.host.interfaces import all_interfaces, interface_of
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import payload_that_fits

_log = logging.getLogger(__name__)
UNWATCHED = 0  # as an interface's index


class LinkWatch:
    """Maps planes to interfaces and keeps the planes' faults up to date."""

    def __init__(self, runtime: EndpointRuntime) -> None:
        """Read all interfaces once, and let the data path receive announcements."""
        self._runtime = runtime
        self._planes = [address.ip for address in runtime.sockets.addresses]
        self._monitor: socket.socket | None = None
        with suppress(OSError):  # a sandbox without netlink: assume that the planes work
            self._monitor = netlink.open_monitor()
            runtime.watch_links(self._monitor.fileno())
            self.refresh()

    def refresh(self) -> None:
        """Read links and addresses again and record changes. Do not call inside the runtime."""
        if self._monitor is None:
            return
        links = netlink.links()
        interfaces = all_interfaces(links)
        with self._runtime.locked():
            in_use = _path_mtu_in_use(self._runtime.engine)
            for plane, address in enumerate(self._planes):
                holder = interface_of(address, among=interfaces)
                row = self._runtime.datapath.planes[plane]
                if holder is not None and not (holder.is_loopback and row.interface != UNWATCHED):
                    row.interface = holder.index
                link = links.get(int(row.interface))
                self._note(plane, Fault.NO_ADDRESS, holder is None)
                self._note(plane, Fault.NO_CARRIER, link is None or not link.works)
                self._note(plane, Fault.MTU, link is not None and payload_that_fits(link.mtu) < in_use)

    def learn(self, plane: int, destination: IPv4Address | IPv6Address) -> None:
        """Record the interface through which a plane's packets to `destination` leave.

        A loopback address, as SRv6 endpoints have, does not identify it; the route does.
        """
        if self._monitor is None or self._planes[plane].is_loopback:
            return
        found = netlink.route(destination, self._planes[plane])
        if found is not None:
            self._runtime.datapath.planes[plane].interface = found
            self._runtime.nic.links_changed = True

    def close(self) -> None:
        """Stop listening; call after the runtime has stopped."""
        if self._monitor is not None:
            self._monitor.close()

    def _note(self, plane: int, fault: Fault, is_there: bool) -> None:
        had = int(self._runtime.datapath.planes[plane].faults)
        set_fault(self._runtime.engine, self._runtime.datapath, plane, int(fault), is_there)
        if bool(had & fault) != is_there:
            what = fault.name.lower().replace("_", " ")
            _log.info("plane %d (%s): %s%s", plane, self._planes[plane], what, "" if is_there else " no longer")


def _path_mtu_in_use(engine: Engine) -> int:
    """Return the largest path MTU of all connected queue pairs (bytes); 0: none is connected."""
    connected = column(engine.qps, "state") >= QpState.RTR
    return int(np.max(column(engine.qps, "path_mtu"), where=connected, initial=0))
