"""Apply faults to the tables when they are due, at no cost before."""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim.loop.fault_events import FaultKind
from openmrc.sim.network import impairments, transport_api
from openmrc.sim.network.forwarding import pfc
from openmrc.sim.network.network_tables import BYTE_TIME_BITS, PS_PER_S_AND_BITS, Network
from openmrc.units import NEVER

PORTS_PER_NIC = 64  # encoding of the subject of FaultKind.PORT_DOWN


@rare_kernel
def apply(state: transport_api.State, network: Network, now: int, kind: int, subject: int, value: int) -> None:
    match kind:
        case FaultKind.LINK_DOWN:
            network.wires[subject].alive_from = NEVER if value == 1 else now
            if value == 0 and network.config[0].lossless:
                _clear_pause(network, now, subject)
        case FaultKind.LINK_RATE:
            _set_rate(network, subject, value)
        case FaultKind.PORT_DOWN:
            _set_port(state, network, now, subject, value == 0)
        case FaultKind.ROUTE_WITHDRAWN:
            _withdraw(network, subject, value == 1)
        case FaultKind.PORT_WITHDRAWN | FaultKind.BOND_LEFT:
            _avoid(network, kind, subject, value == 1)
        case _:
            _impair(network, kind, subject, value)


@kernel
def _impair(network: Network, kind: int, link: int, value: int) -> None:
    row = network.link_impairments[link]
    match kind:
        case FaultKind.LINK_LOSS:
            row.loss = _chance(value)
        case FaultKind.LINK_DATA_LOSS:
            row.data_loss = _chance(value)
        case FaultKind.LINK_MTU:
            row.mtu = value
        case FaultKind.LINK_BIT_ERRORS:
            row.byte_loss = value * 8e-18
        case FaultKind.LINK_DELAY:
            row.delay = value
        case FaultKind.LINK_JITTER:
            row.jitter = value
        case FaultKind.LINK_DUPLICATE:
            row.duplicate = _chance(value)
        case FaultKind.LINK_REORDER:
            row.reorder = _chance(value)
        case FaultKind.LINK_TRIM:
            row.trim = _chance(value)
    wire = network.wires[link]
    wire.impaired &= ~impairments.CHANCES
    changes = row.loss + row.delay + row.jitter + row.duplicate + row.reorder + row.trim + row.data_loss + row.mtu
    if changes > 0 or row.byte_loss > 0.0:
        wire.impaired |= impairments.CHANCES


@kernel
def _chance(share: int) -> int:
    return (share << 32) // 10**9


@kernel
def _clear_pause(network: Network, now: int, link: int) -> None:
    """Clear the pause of a link that returns; a NIC's port detects this when its PAUSE expires."""
    source = network.ports[network.queues[link].reverse].destination
    if source >= len(network.nics):
        pfc.release_pause(network, source, now, link)


@kernel
def _set_rate(network: Network, link: int, rate: int) -> None:
    """Change a link's rate; queued packets keep their departure, buffers keep their bytes."""
    port = network.ports[link]
    before = port.byte_time
    port.byte_time = (PS_PER_S_AND_BITS << BYTE_TIME_BITS) // rate
    port.capacity = _scaled(port.capacity, port.byte_time / before)
    port.control_capacity = _scaled(port.control_capacity, port.byte_time / before)


@kernel
def _scaled(capacity: int, ratio: float) -> int:
    return int(capacity * ratio) if capacity < NEVER else capacity


@kernel
def _set_port(state: transport_api.State, network: Network, now: int, subject: int, up: bool) -> None:
    nic, port = subject // PORTS_PER_NIC, subject % PORTS_PER_NIC
    transport_api.set_port(state, now, nic, port, up)
    network.nics[nic].wake = min(network.nics[nic].wake, now)
    network.nodes[nic].next_at = min(network.nodes[nic].next_at, now)


@kernel
def _withdraw(network: Network, link: int, gone: bool) -> None:
    """Withdraw a link from the routing tables, or restore it."""
    port = network.ports[link]
    network.config[0].detours += int(gone) - int(port.withdrawn)
    port.withdrawn = gone


@kernel
def _avoid(network: Network, kind: int, subject: int, gone: bool) -> None:
    """Exclude a port from routing, or from the NIC's own bond, or restore it."""
    port = network.nic_ports[subject // PORTS_PER_NIC * network.config[0].planes + subject % PORTS_PER_NIC]
    before = int(port.left) + int(port.withdrawn)
    if kind == FaultKind.BOND_LEFT:
        port.left = gone
    else:
        port.withdrawn = gone
    network.config[0].detours += int(port.left) + int(port.withdrawn) - before
