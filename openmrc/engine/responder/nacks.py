"""Reliability NACKs of the responder: a packet was trimmed, or resources for it are missing (MRC Table 7-3)."""

from openmrc.core.jit import kernel
from openmrc.core.serial import PSN_BITS
from openmrc.engine.state import control_queue
from openmrc.engine.state.tables import NONE, Engine
from openmrc.wire.codes import Opcode

_PSN_MASK = (1 << PSN_BITS) - 1


@kernel
def queue(engine: Engine, qp: int, packet: int, psn: int, reason: int) -> None:
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    index = control_queue.claim(engine, row.endpoint, Opcode.NACK, qp, row.peer)
    if index == NONE:
        return
    waiting = engine.control[index]
    waiting.psn = psn
    waiting.reason = reason
    waiting.entropy = arrived.entropy
    waiting.tx_timestamp = arrived.tx_timestamp
    waiting.timestamp_unit = arrived.timestamp_unit
    row.nacks_sent += 1


@kernel
def fill(engine: Engine, index: int, packet: int) -> None:
    waiting = engine.control[index]
    out = engine.packets[packet]
    out.nack_reason = waiting.reason
    out.nack_psn = waiting.psn & _PSN_MASK
    out.psn = out.nack_psn  # likewise (`sacks.fill`)
    out.reflected_entropy = waiting.entropy
