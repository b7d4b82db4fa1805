"""What an endpoint does for controllers: the interface that operations call.

Ports count from 1, as in `mrc_ctl.h`; the rest of the package counts planes from 0. Methods are called from threads of
the server, several at a time.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from openmrc.ctl.denials import Denial
from openmrc.ctl.endpoint_requests import EpRequest, EpResponse
from openmrc.ctl.ev_events import EvEventQueues
from openmrc.ctl.profiles.cc_profile import CcChange
from openmrc.ctl.profiles.ev_configuration import EvProfileChange, FormatChange
from openmrc.ctl.profiles.store import ProfileIds, ProfileStore


class DeviceReport(msgspec.Struct, kw_only=True):
    """An endpoint and its limits."""

    endpoint: str = ""  # name of the socket
    pid: int = 0
    command: str = ""  # of the process
    host: str = ""  # the NIC of `MRC_NIC`, else the machine
    release: str = ""
    opened_at: float = 0.0  # s since 1970
    planes: list[str] = []
    ev_format: str = ""
    evs_per_plane: int = 0
    max_qp: int = 0
    max_mtu: int = 0
    port_mask: int = 0  # bit N: port N


class PortReport(msgspec.Struct, kw_only=True):
    """A local port."""

    port: int
    address: str
    enabled: bool  # admin state
    up: bool  # in use: enabled, with carrier and address
    faults: list[str] = []


COUNTED = ("sent", "acked", "lost", "marked", "trimmed", "probes", "false_losses")  # fields of an EV that count


class EvReport(msgspec.Struct, kw_only=True):
    """An EV of a queue pair and the votes that it cast, since the queue pair was connected."""

    port: int
    ev: int
    state: str  # GOOD, SKIP, ASSUMED_BAD, DENIED
    active: bool = False  # in rotation, not in reserve
    path: str = ""  # where its packets are sent: the SRv6 carrier, or the peer's address
    sent: int = 0
    acked: int = 0  # deliveries
    lost: int = 0
    marked: int = 0
    trimmed: int = 0
    probes: int = 0
    false_losses: int = 0  # of `lost`, packets that had arrived before they were sent again


class QpReport(msgspec.Struct, kw_only=True):
    """A connected queue pair."""

    qpn: int
    peer: list[str]  # the peer's address on each port
    state: str
    evs: list[EvReport]


class CtlProfiles(Protocol):
    """The profiles of an endpoint, and the events of their EVs."""

    store: ProfileStore
    events: EvEventQueues
    lock: AbstractContextManager[object]

    def modify_format(self, number: int, change: FormatChange) -> None: ...

    def modify_ev(self, number: int, change: EvProfileChange) -> None:
        """Change an EV profile, and what uses it."""

    def modify_cc(self, number: int, change: CcChange) -> None:
        """Change a congestion control profile, and what uses it."""

    def use(self, ids: ProfileIds) -> None:
        """Set the profiles of queue pairs that name none."""


class CtlRequests(Protocol):
    def send_wait(self, kind: str, requests: Sequence[EpRequest], seconds: float) -> list[EpResponse]:
        """Return the answers that come in time."""


class CtlDenials(Protocol):
    def deny(self, denials: Sequence[Denial], epoch: int | None, lease: float) -> int:
        """Deny EVs for `lease` seconds; return the epoch. EINVAL, EBUSY (no path would be left), ESTALE."""

    def renew(self, epoch: int | None, lease: float) -> int:
        """Extend all denials by a lease from now; return how many there are. ESTALE."""

    def lift(self, denials: Sequence[Denial] | None, epoch: int | None) -> int:
        """Lift denials, None: all; return how many. ENOENT, ESTALE."""

    def denials(self) -> tuple[int, list[tuple[Denial, float]]]:
        """Return the epoch, and each denial with the seconds left."""


class CtlDevice(Protocol):
    """An endpoint, as controllers see it."""

    @property
    def profiles(self) -> CtlProfiles: ...

    @property
    def denied(self) -> CtlDenials:
        """Return what is denied."""

    @property
    def requests(self) -> CtlRequests: ...

    def device(self) -> DeviceReport: ...

    def ports(self) -> list[PortReport]: ...

    def set_port(self, port: int, enabled: bool) -> None:
        """Enable or disable a port; EINVAL if there is none of this number."""

    def queue_pairs(self) -> list[QpReport]:
        """Return the connected queue pairs with their EVs."""

    def departed(self) -> list[QpReport]:
        """Return what queue pairs counted that are connected no longer, added up by peer; as queue pair 0."""
