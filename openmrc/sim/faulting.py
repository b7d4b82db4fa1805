"""What a fault changes in the tables, at its moment. Until then it costs nothing."""

from __future__ import annotations

from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim import harness, lossless
from openmrc.sim.faults import FaultKind
from openmrc.sim.tables import BYTE_TIME_BITS, Network
from openmrc.units import NEVER

PORTS_PER_NIC = 64  # how FaultKind.PORT_DOWN counts its subjects
_PS_PER_S_AND_BITS = 8 * 10**12


@rare_kernel
def apply(state: harness.State, network: Network, now: int, kind: int, subject: int, value: int) -> None:
    """Let one fault happen."""
    match kind:
        case FaultKind.LINK_DOWN:
            network.wires[subject].alive_from = NEVER
        case FaultKind.LINK_UP:
            network.wires[subject].alive_from = now
            if network.rules[0].lossless == 1:
                _forget_pause(network, now, subject)
        case FaultKind.LINK_RATE:
            _set_rate(network, subject, value)
        case FaultKind.LINK_LOSS:
            network.wires[subject].loss = (value << 32) // 10**9
        case FaultKind.LINK_BIT_ERRORS:
            network.wires[subject].byte_loss = value * 8e-18
        case FaultKind.PORT_DOWN | FaultKind.PORT_UP:
            _set_port(state, network, now, subject, kind == FaultKind.PORT_UP)


@kernel
def _forget_pause(network: Network, now: int, link: int) -> None:
    """A link that comes back is not paused; a NIC's port finds that out when its PAUSE ends."""
    source = network.ports[network.queues[link].reverse].destination
    if source >= len(network.nics):
        lossless.release_pause(network, source, now, link)


@kernel
def _set_rate(network: Network, link: int, rate: int) -> None:
    """Change a link's rate; what is queued keeps its departure, buffers keep their bytes."""
    port = network.ports[link]
    before = port.byte_time
    port.byte_time = (_PS_PER_S_AND_BITS << BYTE_TIME_BITS) // rate
    if port.capacity < NEVER:
        port.capacity = int(port.capacity * (port.byte_time / before))
        port.control_capacity = int(port.control_capacity * (port.byte_time / before))


@kernel
def _set_port(state: harness.State, network: Network, now: int, subject: int, up: bool) -> None:
    nic, port = subject // PORTS_PER_NIC, subject % PORTS_PER_NIC
    harness.set_port(state, now, nic, port, 1 if up else 0)
    network.nics[nic].wake = min(network.nics[nic].wake, now)
    network.nodes[nic].next_at = min(network.nodes[nic].next_at, now)
