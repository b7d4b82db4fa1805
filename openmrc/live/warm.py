"""Compile the loop of the live endpoint, by taking one turn of it on loopback sockets."""

from __future__ import annotations

import socket

import numpy as np

from openmrc.engine.states import QpEvent
from openmrc.live.api.attributes import ContextAttr
from openmrc.live.datapath import event_loop, operations, sources
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import Sockets
from openmrc.live.host.tuning import settings_for


def warm() -> None:
    """Compile every entry, or load it from the cache."""
    attr = ContextAttr(max_qp=1, max_peers=1, max_mr=1, evs_per_plane=1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ports = Sockets([f"127.0.0.1:{port}"], attr)
    runtime = EndpointRuntime(ports, attr, settings_for(ports, ports.mtu), capturing=False)
    try:
        runtime.iterate()
        operations.change(runtime.at, 0, operations.request())
        operations.move(runtime.at, 0, int(QpEvent.TO_RESET), operations.request())
        event_loop.collect(runtime.at, np.zeros((1, 8), np.int64), 1)
        none = np.zeros((1, sources.COLUMNS), np.int64)
        sources.insert(runtime.at, none, 0, 0)
        sources.remove(runtime.at, none, 0)
    finally:
        runtime.stop()
