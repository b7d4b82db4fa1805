"""Open the endpoint of a process: choose its planes and size its context."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace

from openmrc.live.host.interfaces import find_planes
from openmrc.live.host.nic_file import NicFile, from_environment
from openmrc.live.host.planes import EndpointSide, local_planes
from openmrc.train.links.mailbox import RECEIVES, SENDS
from openmrc.verbs import Context, ContextAttr, EvFormat

log = logging.getLogger(__name__)
PLANES_VARIABLE = "MRC_PLANES"
_MAX_PLANES = 16
_LARGEST_MTU = 4096  # bytes; the sockets may allow less


def choose_planes(planes: Sequence[str] | str | None) -> list[str]:
    """Return the addresses of the planes to open.

    They come from the first of: `planes`, MRC_PLANES ("4", "10.0.0.1,10.0.1.1", "eth0"), the file that MRC_NIC names,
    and the interfaces that are up.
    """
    if planes is None:
        planes = os.environ.get(PLANES_VARIABLE) or None
    if planes is None:
        nic = from_environment()
        if nic is not None:
            return nic.planes
        return [str(each.address) for each in find_planes(_MAX_PLANES)]
    text = planes if isinstance(planes, str) else ",".join(planes)
    return local_planes(text, EndpointSide.SERVER)


def open_context(planes: Sequence[str] | str | None, queue_pairs: int, faults: str | None = None) -> Context:
    """Open a context for `queue_pairs` queue pairs, and log the chosen planes in one line."""
    attr = ContextAttr(
        max_qp=queue_pairs,
        max_peers=queue_pairs,
        max_mr=4096,
        max_send_wr=SENDS,
        max_recv_wr=RECEIVES,
    )
    nic_file = from_environment() if planes is None and not os.environ.get(PLANES_VARIABLE) else None
    if nic_file is not None:
        return _open_nic_file(nic_file, attr, faults)
    context = Context(choose_planes(planes), attr, faults=faults)
    log.info("mrc: %s", context.describe())
    return context


def _open_nic_file(nic: NicFile, attr: ContextAttr, faults: str | None) -> Context:
    """Open the NIC that a NIC file describes; its paths are SRv6 addresses."""
    srv6_attr = replace(attr, ev_format=EvFormat.SRV6, mtu=_LARGEST_MTU, evs_per_plane=nic.evs_per_plane)
    settings = nic.settings(_LARGEST_MTU)
    context = Context(nic.planes, srv6_attr, settings=settings, faults=faults, carrier_of=nic.carrier_of)
    log.info("mrc: NIC %s: %s", nic.name, context.describe())
    return context
