"""Snapshots of an endpoint's tables, ours or shared, while it runs: counters of one moment may differ by a few."""

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import column
from openmrc.engine.paths import silence
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.params import CongestionAlgorithm
from openmrc.engine.state.tables import NONE, Cause, Deadline, SentState
from openmrc.live.attributes import PeerAddress, PlaneCounters
from openmrc.live.ctl import report
from openmrc.live.datapath.loop.link_state import Fault
from openmrc.live.host.addresses import host_of
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot, QpSnapshot
from openmrc.units import NEVER, us_from_ps

Ints = NDArray[np.int64]


class PeersView(Protocol):
    """Where peers are, which the tables do not tell in words."""

    def address(self, peer: int) -> PeerAddress | None:
        """Return the addresses of a row of `peers`."""

    def path(self, peer: int, plane: int, ev: int) -> str:
        """Return where packets on an EV are sent."""


_OF_PLANES = set(PortSnapshot.__struct_fields__) & set(PlaneCounters.__dataclass_fields__)
_OF_PAIRS = ("sent_packets", "sent_bytes", "received_packets", "retransmitted", "timeouts", "retries")
_OF_NODES = ("abandoned", "events_dropped", "control_dropped", "unknown_qp", "wrong_source")


def snapshot(
    peers: PeersView, runtime: EndpointRuntime, rows: Sequence[int], downs: Sequence[int], with_evs: bool
) -> EndpointSnapshot:
    """Return counters and states of these queue pairs and of all ports, which went down so many times."""
    engine, node = runtime.engine, runtime.engine.endpoints[0]
    evs = np.zeros((len(downs), 4), np.int64)
    pairs = [_queue_pair(peers, runtime, row, evs, with_evs) for row in rows]
    ports = [_port(runtime, each, evs, downs[each.plane]) for each in report.plane_counters(runtime)]
    return EndpointSnapshot(
        device="",
        pid=0,
        at=time.time(),
        algorithm=CongestionAlgorithm(engine.params[0].algorithm).name.lower(),
        ports=ports,
        queue_pairs=pairs,
        inflight_bytes=sum(pair.inflight_bytes for pair in pairs),
        **{name: getattr(node, name) for name in _OF_NODES},
    )


def _port(runtime: EndpointRuntime, counters: PlaneCounters, evs: Ints, downs: int) -> PortSnapshot:
    faults = int(runtime.datapath.planes[counters.plane].faults)
    return PortSnapshot(
        port=counters.plane + 1,
        faults=[fault.name for fault in Fault if faults & fault],
        transmitted_packets=counters.sent_packets - counters.control_sent,  # the engine counts both together
        transmitted_bytes=counters.sent_bytes,
        control_transmitted=counters.control_sent,
        downs=downs,
        **{name: getattr(counters, name) for name in _OF_PLANES},
        evs=evs[counters.plane].tolist(),
    )


def _queue_pair(peers: PeersView, runtime: EndpointRuntime, row: int, evs: Ints, with_evs: bool) -> QpSnapshot:
    """Return one queue pair, and count its EVs in `evs`, by plane and state."""
    engine = runtime.engine
    qp = engine.qps[row]
    peer = engine.peers[qp.peer] if qp.peer != NONE else None
    found = slice(qp.ev_base, qp.ev_base + qp.ev_count)
    states, planes = column(engine.evs, "state")[found], column(engine.evs, "port")[found]
    np.add.at(evs, (planes, states), 1)
    address = peers.address(int(qp.peer))
    window = qp.sent_base + (np.arange(qp.unack_psn, qp.next_psn) & qp.sent_mask)
    acknowledged = int(qp.unack_psn - qp.first_psn + qp.sacked_beyond)
    now, silent = runtime.now(), silence.silent_ports(engine, row)
    return QpSnapshot(
        qpn=qp.qpn,
        state=QpState(qp.state).name,
        cause=Cause(qp.cause).name if qp.state == QpState.ERROR else "",
        peer=[host_of(plane) for plane in address.planes] if address is not None else [],
        acknowledged=acknowledged,
        inflight=int(np.count_nonzero(column(engine.sent, "state")[window] == SentState.IN_FLIGHT)),
        waiting=qp.lost_count,
        **{name: getattr(qp, name) for name in _OF_PAIRS},
        inflight_bytes=max(int(qp.inflight), 0),  # an estimate, which may fall below
        cwnd_bytes=int(peer.cwnd) if peer is not None else 0,
        srtt_us=us_from_ps(peer.srtt) if peer is not None else 0.0,
        base_rtt_us=us_from_ps(peer.base_rtt) if peer is not None else 0.0,
        silent_ports=[plane + 1 for plane in range(runtime.nic.planes) if silent >> plane & 1],
        timers_us={
            kind.name: us_from_ps(int(qp.deadlines[kind]) - now) for kind in Deadline if int(qp.deadlines[kind]) < NEVER
        },
        ev_states=np.bincount(states, minlength=4).tolist(),
        evs=report.ev_reports(runtime, row, peers.path) if with_evs else [],
    )
