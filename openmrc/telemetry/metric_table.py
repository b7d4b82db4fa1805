"""The metrics: their names, what they mean, and where in a snapshot they are.

Names follow node_exporter's InfiniBand collector where the thing is the same (`node_infiniband_port_...` is
`mrc_port_...`, with the labels `device` and `port`), and the words of the kernel's RDMA hardware counters where one of
those is the same. A series per EV or queue pair exists only if it is asked for: a NIC with a thousand queue pairs of 32
EVs would have 32,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot, QpSnapshot

MOST_PER_PORT = 40  # series of a NIC by default, divided by its ports
_ACTIVE, _DOWN = 4, 1  # states of ports as InfiniBand numbers them


@dataclass(frozen=True)
class PortMetric:
    """A metric of each port."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    value: Callable[[PortSnapshot], float]
    same_as: str = ""  # metric or RDMA counter of others


@dataclass(frozen=True)
class EndpointMetric:
    """A metric of the endpoint as a whole."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    value: Callable[[EndpointSnapshot], float]
    same_as: str = ""


@dataclass(frozen=True)
class QpMetric:
    """A metric of each queue pair, if asked for."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    value: Callable[[QpSnapshot], float]


_NODE = "node_infiniband_"
PORT_METRICS = (
    PortMetric(
        "mrc_port_data_received_bytes",
        "counter",
        "Payload received.",
        lambda p: p.received_bytes,
        f"{_NODE}port_data_received_bytes_total",
    ),
    PortMetric(
        "mrc_port_data_transmitted_bytes",
        "counter",
        "Payload sent, retransmissions included.",
        lambda p: p.transmitted_bytes,
        f"{_NODE}port_data_transmitted_bytes_total",
    ),
    PortMetric(
        "mrc_port_packets_received",
        "counter",
        "Packets received, data and control.",
        lambda p: p.received_packets + p.control_received,
        f"{_NODE}port_packets_received_total",
    ),
    PortMetric(
        "mrc_port_packets_transmitted",
        "counter",
        "Packets sent, data and control.",
        lambda p: p.transmitted_packets + p.control_transmitted,
        f"{_NODE}port_packets_transmitted_total",
    ),
    PortMetric(
        "mrc_port_errors_received",
        "counter",
        "Arrivals that were no valid packet for this endpoint.",
        lambda p: p.refused,
        f"{_NODE}port_errors_received_total",
    ),
    PortMetric(
        "mrc_port_discards_transmitted",
        "counter",
        "Packets that the kernel refused to send.",
        lambda p: p.send_errors,
        f"{_NODE}port_discards_transmitted_total",
    ),
    PortMetric(
        "mrc_port_discards_received",
        "counter",
        "Arrivals dropped because the socket's buffer was full.",
        lambda p: p.kernel_drops,
        "out_of_buffer",
    ),
    PortMetric(
        "mrc_port_transmit_stalls", "counter", "Times that the socket had no room for packets.", lambda p: p.send_stalls
    ),
    PortMetric(
        "mrc_port_link_downed",
        "counter",
        "Times that the port stopped being used for sending.",
        lambda p: p.downs,
        f"{_NODE}link_downed_total",
    ),
    PortMetric(
        "mrc_port_state_id",
        "gauge",
        "State of the port: 4 in use, 1 down.",
        lambda p: _ACTIVE if p.up else _DOWN,
        f"{_NODE}state_id",
    ),
    PortMetric("mrc_port_silent", "gauge", "1 while what is sent to some peer is lost here.", lambda p: p.silent),
    PortMetric("mrc_port_silences", "counter", "Times that a queue pair found the port silent.", lambda p: p.silences),
    PortMetric("mrc_port_retransmitted_packets", "counter", "Data packets sent again.", lambda p: p.retransmitted),
    PortMetric("mrc_port_lost_packets", "counter", "Packets sent here and inferred lost.", lambda p: p.lost),
    PortMetric(
        "mrc_port_ecn_marked_packets",
        "counter",
        "Packets that arrived with a congestion mark.",
        lambda p: p.marked,
        "np_ecn_marked_roce_packets",
    ),
    PortMetric("mrc_port_trimmed_packets", "counter", "Packets that arrived trimmed.", lambda p: p.trimmed),
    PortMetric("mrc_port_impaired_packets", "counter", "Arrivals impaired on purpose.", lambda p: p.impaired),
)

ENDPOINT_METRICS = (
    EndpointMetric("mrc_queue_pairs", "gauge", "Queue pairs that can send.", lambda e: e.working_queue_pairs),
    EndpointMetric(
        "mrc_queue_pair_errors",
        "counter",
        "Queue pairs that went to ERROR.",
        lambda e: e.queue_pair_errors,
        "req_cqe_error",
    ),
    EndpointMetric("mrc_inflight_bytes", "gauge", "Bytes sent and not acknowledged.", lambda e: e.inflight_bytes),
    EndpointMetric(
        "mrc_round_trip_seconds",
        "gauge",
        "Longest smoothed round trip of a queue pair.",
        lambda e: max((pair.srtt_us for pair in e.queue_pairs), default=0.0) / 1e6,
    ),
    EndpointMetric(
        "mrc_local_ack_timeouts",
        "counter",
        "Retransmission timeouts.",
        lambda e: e.totals.timeouts,
        "local_ack_timeout_err",
    ),
    EndpointMetric(
        "mrc_packet_sequence_errors", "counter", "NACKs received.", lambda e: e.totals.nacks_received, "packet_seq_err"
    ),
    EndpointMetric("mrc_nacks_sent", "counter", "NACKs sent.", lambda e: e.totals.nacks_sent),
    EndpointMetric(
        "mrc_duplicate_requests",
        "counter",
        "Data packets that arrived twice.",
        lambda e: e.totals.duplicates,
        "duplicate_request",
    ),
    EndpointMetric(
        "mrc_out_of_window",
        "counter",
        "Data packets beyond the receive window.",
        lambda e: e.totals.out_of_window,
        "out_of_sequence",
    ),
    EndpointMetric(
        "mrc_spurious_retransmissions",
        "counter",
        "Retransmissions of packets that had arrived.",
        lambda e: e.totals.spurious,
    ),
    EndpointMetric("mrc_probes_sent", "counter", "Probes sent.", lambda e: e.totals.probes_sent),
    EndpointMetric("mrc_unknown_queue_pair", "counter", "Packets for no queue pair.", lambda e: e.unknown_qp),
    EndpointMetric("mrc_wrong_source", "counter", "Packets in a peer's name from elsewhere.", lambda e: e.wrong_source),
    EndpointMetric(
        "mrc_events_dropped",
        "counter",
        "Events and control packets for which a ring had no room.",
        lambda e: e.events_dropped + e.control_dropped,
    ),
    EndpointMetric("mrc_uptime_seconds", "gauge", "Time since the endpoint was opened.", lambda e: e.uptime),
)

QP_METRICS = (
    QpMetric("mrc_qp_data_transmitted_bytes", "counter", "Payload sent by a queue pair.", lambda q: q.sent_bytes),
    QpMetric("mrc_qp_retransmitted_packets", "counter", "Packets sent again.", lambda q: q.retransmitted),
    QpMetric("mrc_qp_timeouts", "counter", "Retransmission timeouts.", lambda q: q.timeouts),
    QpMetric("mrc_qp_congestion_window_bytes", "gauge", "Window of the peer.", lambda q: q.cwnd_bytes),
    QpMetric("mrc_qp_inflight_bytes", "gauge", "Bytes sent and not acknowledged.", lambda q: q.inflight_bytes),
    QpMetric("mrc_qp_round_trip_seconds", "gauge", "Smoothed round trip.", lambda q: q.srtt_us / 1e6),
)

EV_METRIC = "mrc_port_evs", "EVs of all queue pairs on the port, by state."
QP_EV_METRICS = (
    ("mrc_ev_state", "gauge", "State of an EV: 0 GOOD, 1 SKIP, 2 ASSUMED_BAD, 3 DENIED."),
    ("mrc_ev_transmitted_packets", "counter", "Packets sent on an EV."),
    ("mrc_ev_lost_packets", "counter", "Packets lost on an EV."),
)


def as_markdown() -> str:
    """Return the table of metrics for the documentation."""
    lines = ["| metric | kind | meaning | the same as |", "|---|---|---|---|"]
    for each in (*PORT_METRICS, *ENDPOINT_METRICS):
        total = "_total" if each.kind == "counter" else ""
        same = f"`{each.same_as}`" if each.same_as else ""
        lines.append(f"| `{each.name}{total}` | {each.kind} | {each.about} | {same} |")
    lines.append(f"| `{EV_METRIC[0]}` | gauge | {EV_METRIC[1]} |  |")
    lines.append("| `mrc_device_info` | gauge | 1, with release, process and congestion control. |  |")
    return "\n".join(lines)
