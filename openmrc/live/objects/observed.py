"""A NIC as telemetry sees it: snapshots, totals that outlive queue pairs, and the event log."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import column
from openmrc.engine.paths import silence
from openmrc.engine.state.params import CongestionAlgorithm
from openmrc.engine.state.states import EvEvent, EvState, QpState
from openmrc.engine.state.tables import NONE, Cause, Deadline, EventKind
from openmrc.live.api.attributes import PlaneCounters
from openmrc.live.datapath.datapath_tables import EventRecord
from openmrc.live.datapath.link_state import Fault
from openmrc.live.host.addresses import host_of
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.objects import report
from openmrc.telemetry.event_log import EventLog
from openmrc.telemetry.publisher import PUBLISHER
from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot, QpSnapshot
from openmrc.telemetry.totals import CounterTotals
from openmrc.units import NEVER, us_from_ps
from openmrc.version import __version__

if TYPE_CHECKING:
    from openmrc.live.objects.nic import Nic

Ints = NDArray[np.int64]
_COMMAND_LENGTH = 64  # characters of the program's name: a label, not an audit


class NicTelemetry:
    """What one NIC publishes."""

    def __init__(self, nic: Nic, runtime: EndpointRuntime) -> None:
        """Publish the NIC; ConfigError: `MRC_METRICS` names an address that cannot be used."""
        self._nic = nic
        self._runtime = runtime
        self._opened_at = time.monotonic()
        self._totals = CounterTotals()
        self._lock = threading.Lock()  # of the totals
        self._downs = [0] * len(runtime.sockets.addresses)
        self._ports_up = int(runtime.engine.endpoints[0].ports_up)
        self._errors = 0
        self.device = f"mrc_{str(runtime.sockets.addresses[0]).replace(':', '_')}"
        self.log = EventLog(self.device)
        PUBLISHER.add(id(self), self.snapshot)

    def close(self) -> None:
        """Publish no more."""
        PUBLISHER.remove(id(self))

    def on_event(self, record: EventRecord) -> None:
        """Log an event of the engine; called by the endpoint's Python thread, for each."""
        qpn = self._nic.qpn(record.qp) if record.qp != NONE else 0
        match record.kind:
            case EventKind.EV_STATE:
                state, cause = EvState(record.state).name, EvEvent(record.cause).name
                self.log.add("ev_state", qpn=qpn, port=record.port + 1, ev=record.entropy, state=state, cause=cause)
            case EventKind.QP_ERROR:
                self._errors += 1
                self.log.add("qp_error", qpn=qpn, state="ERROR", cause=Cause(record.state).name)
            case EventKind.SILENT_PORT:
                state = "SILENT" if record.state else "HEARD"
                self.log.add("silent_port", qpn=qpn, port=record.port + 1, state=state)
            case EventKind.LOCAL_PORTS:
                self._on_local_ports(record.state)
            case _:
                self.log.add("peer_ports", state=f"{record.state:#b}")

    def _on_local_ports(self, mask: int) -> None:
        for plane in range(len(self._downs)):
            if (mask ^ self._ports_up) >> plane & 1:
                is_up = bool(mask >> plane & 1)
                self._downs[plane] += not is_up
                faults = int(self._runtime.datapath.planes[plane].faults)
                cause = ", ".join(fault.name for fault in Fault if faults & fault)
                self.log.add("port", port=plane + 1, state="UP" if is_up else "DOWN", cause=cause)
        self._ports_up = mask

    def before_end(self, row: int) -> None:
        """Keep the counters of a queue pair that goes to RESET or is destroyed."""
        with self._lock:
            self._totals.take(row, self._runtime.engine.qps[row])
            self._totals.forget(row)

    def snapshot(self, with_evs: bool = False) -> EndpointSnapshot:
        """Return counters and states now. Reads while the endpoint runs: counters of one moment may differ by a few."""
        engine, node = self._runtime.engine, self._runtime.engine.endpoints[0]
        rows = [row for row in self._nic.qp_rows() if self._nic.qp_state(row) != QpState.RESET]
        self._take(rows)
        evs = np.zeros((len(self._downs), 4), np.int64)
        pairs = [self._queue_pair(row, evs, with_evs) for row in rows]
        return EndpointSnapshot(
            device=self.device,
            pid=os.getpid(),
            at=time.time(),
            uptime=time.monotonic() - self._opened_at,
            release=__version__,
            command=Path(sys.argv[0]).name[:_COMMAND_LENGTH],
            algorithm=CongestionAlgorithm(engine.params[0].algorithm).name.lower(),
            ports=self._ports(evs),
            totals=self._totals.totals(),
            queue_pairs=pairs,
            queue_pair_errors=self._errors,
            inflight_bytes=sum(pair.inflight_bytes for pair in pairs),
            events_dropped=node.events_dropped,
            control_dropped=node.control_dropped,
            unknown_qp=node.unknown_qp,
            wrong_source=node.wrong_source,
            telemetry_events=self.log.count,
        )

    def _take(self, rows: list[int]) -> None:
        with self._lock:
            for row in rows:
                fired = self._totals.take(row, self._runtime.engine.qps[row])
                if fired:
                    self.log.add("timer", qpn=self._nic.qpn(row), cause="RTO", text=f"fired {fired} times")

    def _ports(self, evs: Ints) -> list[PortSnapshot]:
        return [self._port(counters, evs) for counters in report.plane_counters(self._runtime)]

    def _port(self, counters: PlaneCounters, evs: Ints) -> PortSnapshot:
        faults = int(self._runtime.datapath.planes[counters.plane].faults)
        return PortSnapshot(
            port=counters.plane + 1,
            address=counters.address,
            up=counters.up,
            faults=[fault.name for fault in Fault if faults & fault],
            silent=counters.silent,
            transmitted_packets=counters.sent_packets,
            transmitted_bytes=counters.sent_bytes,
            received_packets=counters.received_packets,
            received_bytes=counters.received_bytes,
            control_transmitted=counters.control_sent,
            control_received=counters.control_received,
            retransmitted=counters.retransmitted,
            lost=counters.lost,
            marked=counters.marked,
            trimmed=counters.trimmed,
            silences=counters.silences,
            downs=self._downs[counters.plane],
            refused=counters.refused,
            kernel_drops=counters.kernel_drops,
            send_errors=counters.send_errors,
            send_stalls=counters.send_stalls,
            impaired=counters.impaired,
            evs=evs[counters.plane].tolist(),
        )

    def _queue_pair(self, row: int, evs: Ints, with_evs: bool) -> QpSnapshot:
        """Return one queue pair, and count its EVs in `evs`, by plane and state."""
        engine = self._runtime.engine
        qp = engine.qps[row]
        peer = engine.peers[qp.peer] if qp.peer != NONE else None
        found = slice(qp.ev_base, qp.ev_base + qp.ev_count)
        states, planes = column(engine.evs, "state")[found], column(engine.evs, "port")[found]
        np.add.at(evs, (planes, states), 1)
        address = self._nic.peers.address(int(qp.peer))
        now, silent = self._runtime.now(), silence.silent_ports(engine, row)
        return QpSnapshot(
            qpn=self._nic.qpn(row),
            state=QpState(qp.state).name,
            cause=Cause(qp.cause).name if qp.state == QpState.ERROR else "",
            peer=[host_of(plane) for plane in address.planes] if address is not None else [],
            sent_packets=qp.sent_packets,
            sent_bytes=qp.sent_bytes,
            received_packets=qp.received_packets,
            retransmitted=qp.retransmitted,
            timeouts=qp.timeouts,
            retries=qp.retries,
            inflight_bytes=qp.inflight,
            cwnd_bytes=int(peer.cwnd) if peer is not None else 0,
            srtt_us=us_from_ps(peer.srtt) if peer is not None else 0.0,
            base_rtt_us=us_from_ps(peer.base_rtt) if peer is not None else 0.0,
            silent_ports=[plane + 1 for plane in range(len(self._downs)) if silent >> plane & 1],
            timers_us={
                kind.name: us_from_ps(int(qp.deadlines[kind]) - now)
                for kind in Deadline
                if int(qp.deadlines[kind]) < NEVER
            },
            ev_states=np.bincount(states, minlength=4).tolist(),
            evs=report.ev_reports(self._runtime, row, self._nic.peers.path) if with_evs else [],
        )
