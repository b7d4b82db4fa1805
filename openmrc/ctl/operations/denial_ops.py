"""Deny EVs under a lease and an epoch, renew, lift, list."""

from __future__ import annotations

import msgspec

from openmrc.ctl.denials import MOST_LEASE, Denial
from openmrc.ctl.device import CtlDevice


class Deny(msgspec.Struct, kw_only=True):
    """EVs to deny, in order up to the first that is refused (`done`)."""

    denials: list[Denial]
    lease: float = MOST_LEASE  # s
    epoch: int | None = None  # None: the present one


class Renew(msgspec.Struct, kw_only=True):
    """Extend everything that is denied."""

    lease: float = MOST_LEASE  # s, from now
    epoch: int | None = None


class Lift(msgspec.Struct, kw_only=True):
    """EVs to use again; None: all."""

    denials: list[Denial] | None = None
    epoch: int | None = None


class DenialsQuery(msgspec.Struct):
    """What is denied."""


class DeniedEv(msgspec.Struct, kw_only=True):
    """A denial and how long its lease has left."""

    denial: Denial
    seconds: float


class DenialsReply(msgspec.Struct, kw_only=True):
    """What is denied now."""

    epoch: int
    denied: list[DeniedEv]


def deny(device: CtlDevice, request: Deny) -> DenialsReply:
    """Deny EVs; return all denials."""
    device.denied.deny(request.denials, request.epoch, request.lease)
    return _reply(device)


def renew(device: CtlDevice, request: Renew) -> DenialsReply:
    """Renew all denials; return them."""
    device.denied.renew(request.epoch, request.lease)
    return _reply(device)


def lift(device: CtlDevice, request: Lift) -> DenialsReply:
    """Lift denials; return those that are left."""
    device.denied.lift(request.denials, request.epoch)
    return _reply(device)


def denials(device: CtlDevice, request: DenialsQuery) -> DenialsReply:
    """Return all denials."""
    return _reply(device)


def _reply(device: CtlDevice) -> DenialsReply:
    epoch, found = device.denied.denials()
    return DenialsReply(epoch=epoch, denied=[DeniedEv(denial=denial, seconds=left) for denial, left in found])
