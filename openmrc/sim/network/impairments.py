"""Impairments of packets on a link: loss, trimming, duplication, delay. Decided on arrival.

Names and meaning are those of the live impairments (`openmrc.base.faults`); a packet whose transport does not allow
trimming is lost instead. A delayed packet waits in a list of its link ordered by time, so that others can overtake it
under jitter and `reorder`; a link that goes down loses its delayed packets. From then on a duplicate is a separate
packet: it fills queues and can be lost like any other.
"""

from openmrc.base.faults import OVERTAKEN
from openmrc.core import rng
from openmrc.core.jit import kernel
from openmrc.sim.network import transport_api
from openmrc.sim.network.network_tables import NONE, Network, Service
from openmrc.wire.codes import Trim

LOST, DUPLICATE, REORDER, TRIM = 1, 2, 4, 8  # effects on a packet
CHANCES, HOLDS = 1, 2  # of Wire.impaired: packets may be impaired; packets are held back
ONE = 1 << 32  # a probability of 1
_JITTER_STEPS = 1 << 16


@kernel
def decide(network: Network, link: int, hop: int) -> int:
    """Return the impairments of a packet, as a mask."""
    row = network.link_impairments[link]
    packet = network.hops[hop]
    chance = row.loss + int(row.byte_loss * packet.size * ONE)
    if packet.service != Service.CONTROL:
        chance += row.data_loss
    if 0 < row.mtu < packet.size:
        chance = ONE
    if _draw(network, link, chance):
        return LOST
    effects = 0
    if _draw(network, link, row.duplicate):
        effects |= DUPLICATE
    if _draw(network, link, row.reorder):
        effects |= REORDER
    has_payload = packet.service != Service.CONTROL and packet.size > network.config[0].trim_size
    if has_payload and _draw(network, link, row.trim):
        effects |= TRIM if packet.trimmable else LOST
    return effects


@kernel
def _draw(network: Network, link: int, chance: int) -> bool:
    if chance == 0:
        return False
    wire = network.wires[link]
    wire.random = rng.following(wire.random)
    return wire.random < chance


@kernel
def trim(network: Network, hop: int) -> None:
    """Trim a packet to its headers, as a switch in mid-fabric with a full queue does."""
    row = network.hops[hop]
    row.trimmed = Trim.TRIMMED
    row.size = network.config[0].trim_size
    row.service = Service.CONTROL


@kernel
def duplicate(state: transport_api.State, network: Network, hop: int, copy: int) -> None:
    """Copy another packet into a fresh packet row, with the content of its transport."""
    frame = network.hops[copy].frame
    network.hops[copy] = network.hops[hop]
    network.hops[copy].frame = frame
    state.frames[frame] = state.frames[network.hops[hop].frame]


@kernel
def arrival(network: Network, link: int, hop: int, effects: int) -> int:
    """Return the arrival time of a packet (ps), with the link's delay and jitter, and reordering."""
    row = network.link_impairments[link]
    at = network.hops[hop].arrives + row.delay
    if row.jitter > 0:
        wire = network.wires[link]
        wire.random = rng.following(wire.random)
        at += row.jitter // _JITTER_STEPS * rng.below(wire.random, _JITTER_STEPS)
    return at + OVERTAKEN if effects & REORDER != 0 else at


@kernel
def hold(network: Network, link: int, hop: int) -> None:
    """Hold a packet until it is due, after those that are due no later."""
    row = network.link_impairments[link]
    at = network.hops[hop].arrives
    if network.wires[link].impaired & HOLDS == 0:
        network.wires[link].impaired |= HOLDS
        row.late = row.last_late = NONE
    before, after = NONE, row.late
    if row.last_late != NONE and network.hops[row.last_late].arrives <= at:
        before, after = row.last_late, NONE  # the usual place: equal delays keep the order
    while after != NONE and network.hops[after].arrives <= at:
        before, after = after, network.hops[after].next
    network.hops[hop].next = after
    if before == NONE:
        row.late = hop
    else:
        network.hops[before].next = hop
    if after == NONE:
        row.last_late = hop


@kernel
def pop_delayed(network: Network, link: int) -> None:
    """Remove the first delayed packet from the list."""
    row = network.link_impairments[link]
    row.late = network.hops[row.late].next
    if row.late == NONE:
        row.last_late = NONE
        network.wires[link].impaired &= ~HOLDS
