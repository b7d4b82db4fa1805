"""`Settings`: all tunables of the endpoint with defaults and reasons, and their conversion into a `Params` row.

Where no public source gives a value, the default is ours and the comment of the field says so. NSCC's constants are
those of UEC 1.0.3 pp. 390-397, evaluated for the base RTT and rate given.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import get_type_hints

from openmrc.base.ranges import refuse_outside
from openmrc.core.rows import Table, table
from openmrc.engine.state.tables import Params
from openmrc.errors import ConfigError
from openmrc.units import PS_PER_MS, PS_PER_S, ps_from_us


class CongestionAlgorithm(IntEnum):
    """Congestion control algorithm of a peer; names as in the controller API."""

    NONE = 0  # the window never closes: for study
    NSCC = 1  # "uet-1.0-nscc"


ALGORITHM_NAMES = {"none": CongestionAlgorithm.NONE, "uet-1.0-nscc": CongestionAlgorithm.NSCC}

NOMINAL_OVERHEAD = (
    88  # bytes a data packet counts beside its payload: UDP header to ICRC (48), and the 40 of MRC §8.3.1
)
_REFERENCE_BDP = 150_000  # bytes: 100 Gb/s x 12 us, the point at which UEC states its constants
_REFERENCE_DELAY_US = 12.0

_LONGEST_US = 1e9  # of a time: a thousand seconds are longer than any timer, and times still add up in 64 bits of ps
_LARGEST = 1 << 48  # of a number of bytes or packets: far above any window
_TIME, _TIME_ABOVE_ZERO, _COUNT = (0, _LONGEST_US), (1e-6, _LONGEST_US), (1, _LARGEST)
_RANGES: dict[str, tuple[float, float]] = {
    "mtu": (1, 1 << 20),
    "link_gbps": (1e-6, 1e6),
    "base_rtt_us": _TIME_ABOVE_ZERO,
    "sack_threshold": (0, 1 << 30),
    "sack_minimum": (0, _LARGEST),
    "ack_every": _COUNT,
    "always_skip_packets": (0, 1 << 30),
    "always_skip_percent": (0, 100),
    "receiver_penalty": (0, 127),  # the width of the field
    "loss_threshold": (1, 1 << 30),  # at 0 an EV would be retired before it lost anything
    "gap_packets": (0, 1 << 30),
    "loss_delay_floor_us": _TIME,
    "silent_timeouts": (1, 16),
    "ev_burst": (0, _LARGEST),
    "probe_interval_us": _TIME_ABOVE_ZERO,
    "probe_interval_max_us": _TIME_ABOVE_ZERO,
    "outage_probe_interval_us": _TIME_ABOVE_ZERO,
    "probe_successes": (1, 127),  # counted in 8 bits
    "reverse_probe_interval_us": _TIME,
    "port_status_interval_us": _TIME,
    "port_remap_delay_us": _TIME,
    "timestamp_unit": (0, 1),
    "initial_cwnd": (0, _LARGEST),
    "max_cwnd": (0, _LARGEST),
    "target_delay_us": _TIME,
    "gamma": (0, 1),  # of a decrease: more would turn the window negative
    "max_md_jump": (0, 1),
    "fast_delay_us": _TIME,
    "qa_gate": (0, 62),  # a shift
    "qa_threshold_us": _TIME,
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Tunables of a deployment; times in microseconds, sizes in bytes, rates in Gb/s."""

    mtu: int = 4096  # payload bytes; NSCC's constants are multiples of it
    link_gbps: float = 800.0  # all ports of the NIC together
    base_rtt_us: float = 12.0  # unloaded, longest path of the fabric
    base_rtt_measured: bool = True  # lower the base RTT to the least sample seen
    base_rtt_followed: bool = False  # let it follow the path, at least `base_rtt_us` (RFC 9002, 5.2)
    trimming: bool = True

    # MRC leaves the threshold open; 16 KiB with 1 KiB a packet is UET's ACK_GEN_TRIGGER.
    sack_threshold: int = 16_384
    sack_minimum: int = 1_024
    ack_every: int = 64  # ours, in the manner of InfiniBand: nothing public
    refuse_out_of_window: bool = False  # §6.3.1 drops silently, Table 7-3 names a NACK: both are kept
    always_skip_packets: int = 0  # ours: the criterion is unpublished, so it is off
    always_skip_percent: int = 90
    receiver_penalty: int = 0
    answers_together: bool = False  # ours: over sockets one system call then sends them all

    loss_threshold: int = 1  # arXiv 2605.04333: the first untrimmed loss retires an EV
    gap_packets: int = 3  # ours
    loss_delay_floor_us: float = 0.0
    tail_probe: bool = True  # ours, after UET's probe for lost acknowledgements
    silent_timeouts: int = 1  # IBTA volume 1, 9.7.6.1.3, allows up to 4

    silence: bool = True  # ours; false: only the port's state and single EVs, as published NICs do
    ev_burst: int = 0  # bytes, nominal
    share_by_delay: bool = False  # ours: for ports of unequal or unknown rate
    probe_interval_us: float = 1_000.0  # ours; or ten round trips, whichever is longer
    probe_interval_max_us: float = 1_000_000.0  # ours
    outage_probe_interval_us: float = 50_000.0  # ours: 20 probes a second, of a queue pair that can do nothing else
    probe_successes: int = 3  # ours: "enough probes" is all that is published
    reverse_probe_interval_us: float = 1.0  # 0: none; a base round trip if that is longer (arXiv 2605.04333)
    port_status_interval_us: float = 100_000.0  # ours
    port_remap_delay_us: float = 0.0  # hardware takes seconds (arXiv 2605.04333); software need not
    timestamp_unit: int = 0  # 0: 128 ns, wraps at 8.4 ms; 1: 1 us, wraps at 65.5 ms

    algorithm: str = "uet-1.0-nscc"
    initial_cwnd: int = 0  # bytes, 0: max_cwnd; flows start at line rate
    max_cwnd: int = 0  # bytes, 0: 1.5 x BDP, following the measured base RTT
    bound_by_delivery: bool = False  # for networks of unknown rate; needs `initial_cwnd`
    target_delay_us: float = 0.0  # 0: 0.75 x base RTT with trimming, 1.0 x without
    gamma: float = 0.8
    max_md_jump: float = 0.5
    fast_delay_us: float = 1.0
    disable_qa: bool = False
    qa_gate: int = 3
    qa_threshold_us: float = 0.0  # 0: 4 x target delay

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid value, naming the field."""
        if self.algorithm not in ALGORITHM_NAMES:
            raise ConfigError(f"algorithm: {self.algorithm!r} is not one of {', '.join(ALGORITHM_NAMES)}")
        refuse_outside(self, **_RANGES)

    @property
    def bdp(self) -> int:
        """Return the bandwidth-delay product of the NIC over the base RTT, in bytes."""
        return int(self.link_gbps * 1e9 / 8 * self.base_rtt_us * 1e-6)

    @property
    def target_us(self) -> float:
        """Return the target queueing delay of NSCC, in microseconds."""
        return self.target_delay_us or self.base_rtt_us * (0.75 if self.trimming else 1.0)


def params_table(settings: Settings, count: int = 1) -> Table[Params]:
    """Return a table of `count` rows, each with these settings in engine units."""
    rows = table(Params, count)
    for index in range(count):
        fill(rows[index], settings)
    return rows


def fill(row: Params, settings: Settings) -> None:
    """Write settings into a row: those of the same name, times in ps, and what is computed of them."""
    given = vars(settings) | {"algorithm": ALGORITHM_NAMES[settings.algorithm]}
    for name in get_type_hints(Params):
        if name in given:
            setattr(row, name, given[name])
        elif f"{name}_us" in given:
            setattr(row, name, ps_from_us(given[f"{name}_us"]))
    row.probe_interval_max = min(row.probe_interval_max, 3600 * PS_PER_S)
    row.outage_probe_interval = min(row.outage_probe_interval, row.probe_interval_max)
    row.port_status_interval = max(row.port_status_interval, PS_PER_MS)
    _fill_congestion(row, settings)


def _fill_congestion(row: Params, settings: Settings) -> None:
    scaling_a = settings.bdp / _REFERENCE_BDP
    scaling_b = settings.target_us / _REFERENCE_DELAY_US
    row.link_rate = round(settings.link_gbps * 1e9)
    row.target_delay = ps_from_us(settings.target_us)
    row.min_cwnd = settings.mtu + NOMINAL_OVERHEAD  # one packet
    row.alpha = 4.0 * settings.mtu * scaling_a * scaling_b / row.target_delay
    row.fi = 5.0 * settings.mtu * scaling_a
    row.fi_scale = 0.25 * scaling_a
    row.eta = 0.15 * settings.mtu * scaling_a
    row.qa_threshold = row.qa_threshold or 4 * row.target_delay
    row.adjust_bytes = 8 * settings.mtu
    row.adjust_period = row.base_rtt
