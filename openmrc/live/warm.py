"""Compile the event loop of the live endpoint, by one iteration on loopback sockets."""

import socket

from openmrc.core.calls import address_of_entry
from openmrc.live.attributes import ContextAttr
from openmrc.live.datapath.loop.iteration import send_out, take_in
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import Sockets
from openmrc.live.host.tuning import settings_for


def warm(entry: str = "") -> None:
    """Compile every entry that is not in the cache, or only one of the two halves of an iteration."""
    if entry:
        address_of_entry(take_in) if entry == "take_in" else address_of_entry(send_out)
        return
    attr = ContextAttr(max_qp=1, max_peers=1, max_mr=1, evs_per_plane=1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ports = Sockets([f"127.0.0.1:{port}"], attr)
    runtime = EndpointRuntime(ports, attr, settings_for(ports, ports.mtu), capturing=False)
    try:
        runtime.compile()
    finally:
        runtime.stop()
