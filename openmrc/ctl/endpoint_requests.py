"""Batches of endpoint requests (EV Probe, Port Status Update) and the answers to them."""

from collections.abc import Sequence

import msgspec

from openmrc.errors import InvalidArgumentError, TooBigError

MOST_REQUESTS = 1024  # in one batch
MOST_SECONDS = 10.0
PROBE = "ev_probe"
STATUS = "port_status_update"


class EpRequest(msgspec.Struct, kw_only=True):
    """One request (`mrc_ctl_ep_req`)."""

    req_id: int  # 16 bits, unique within the batch
    peer: str  # address of a connected peer on the port
    port: int
    ev: int
    status_mask: int = 0  # PORT_STATUS_UPDATE: bit N: port N is up


class EpResponse(msgspec.Struct, kw_only=True):
    """One answer (`mrc_ctl_ep_rsp`)."""

    req_id: int
    port: int  # on which the answer arrived
    rtt: int  # ns, without time that waits in sockets are not seen by; resolution 1 us
    adj_svc_time: bool = False  # a software endpoint's answers do not name their service time


def check_batch(requests: Sequence[EpRequest], seconds: float) -> None:
    """Check what can be checked without an endpoint: EINVAL, E2BIG."""
    if not 1 <= len(requests) <= MOST_REQUESTS:
        raise TooBigError(f"requests: {len(requests)}; a batch has 1..{MOST_REQUESTS}", MOST_REQUESTS)
    if not 0 < seconds <= MOST_SECONDS:
        raise InvalidArgumentError(f"timeout: {seconds} s is not above 0 and at most {MOST_SECONDS:g}")
    ids = [request.req_id for request in requests]
    for index, number in enumerate(ids):
        if not 0 <= number < 1 << 16:
            raise InvalidArgumentError(f"requests[{index}].req_id: {number} is not in 0..65535")
    if len(set(ids)) < len(ids):
        raise InvalidArgumentError("requests: a req_id comes twice")
