"""Open the endpoint of a process: choose its planes and size its context."""

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from openmrc.live.host.interfaces import find_planes
from openmrc.live.host.nic_file import NicFile, from_environment
from openmrc.live.host.planes import EndpointSide, local_planes
from openmrc.train.links.mailbox import RECEIVES, SENDS
from openmrc.verbs import Context, ContextAttr, EvFormat

log = logging.getLogger(__name__)
PLANES_VARIABLE = "MRC_PLANES"
_MAX_PLANES = 16
_LARGEST_MTU = 4096  # bytes; the sockets may allow less
_MIN_QUEUE_PAIRS = 16  # of an endpoint
_GROUPS_PER_ENDPOINT = 4  # groups of the size of the first


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
    attr = ContextAttr(max_qp=queue_pairs, max_peers=queue_pairs, max_mr=4096, max_send_wr=SENDS, max_recv_wr=RECEIVES)
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


@dataclass
class _Endpoint:
    context: Context
    planes: list[str]
    free: int  # queue pairs
    users: int = 0


class Endpoints:
    """Opens endpoints, and closes them when their last group has left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[_Endpoint] = []

    def take(self, planes: Sequence[str] | str | None, queue_pairs: int, faults: str | None) -> Context:
        """Reserve queue pairs on an endpoint with these planes; `faults` applies only to an endpoint opened here."""
        chosen = choose_planes(planes)
        with self._lock:
            endpoint = next((each for each in self._open if each.planes == chosen and each.free >= queue_pairs), None)
            if endpoint is None:
                room = max(_GROUPS_PER_ENDPOINT * queue_pairs, _MIN_QUEUE_PAIRS)
                endpoint = _Endpoint(open_context(planes, room, faults), chosen, room)
                self._open.append(endpoint)
            endpoint.free -= queue_pairs
            endpoint.users += 1
            return endpoint.context

    def give_back(self, context: Context, queue_pairs: int) -> None:
        """Release the queue pairs of a group that has left."""
        with self._lock:
            endpoint = next(each for each in self._open if each.context is context)
            endpoint.free += queue_pairs
            endpoint.users -= 1
            if endpoint.users:
                return
            self._open.remove(endpoint)
        endpoint.context.close()


ENDPOINTS = Endpoints()
