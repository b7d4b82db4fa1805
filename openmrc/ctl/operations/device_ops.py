"""Device query, ports and their admin state."""

from __future__ import annotations

import msgspec

from openmrc.ctl.device import CtlDevice, DeviceReport, PortReport


class Nothing(msgspec.Struct):
    """A request or reply without fields."""


class PortsReply(msgspec.Struct, kw_only=True):
    """Every port."""

    ports: list[PortReport]


class SetPort(msgspec.Struct, kw_only=True):
    """Enable or disable a port."""

    port: int
    enabled: bool


def device(endpoint: CtlDevice, request: Nothing) -> DeviceReport:
    """Return the endpoint and its limits."""
    return endpoint.device()


def ports(endpoint: CtlDevice, request: Nothing) -> PortsReply:
    """Return the ports."""
    return PortsReply(ports=endpoint.ports())


def set_port(endpoint: CtlDevice, request: SetPort) -> PortsReply:
    """Set the admin state of a port and return all ports."""
    endpoint.set_port(request.port, request.enabled)
    return PortsReply(ports=endpoint.ports())
