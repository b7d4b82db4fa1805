"""The window algorithm, signal by signal."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from harness.engine_pair import NetworkConditions, Pair
from openmrc.engine.congestion import nscc, qpcc
from openmrc.engine.state.params import Settings
from openmrc.engine.state.queue_pairs import nominal_size
from openmrc.units import PS_PER_MS
from openmrc.wire.codes import NackReason
from tests.engine.scripted_peer import Endpoint, nack, sack, us

MTU = 4096
FABRIC = Settings(link_gbps=800.0, base_rtt_us=12.0, base_rtt_measured=False)
BASE = 12.0  # us
TARGET = 9.0  # us: 0.75 of it


class Window:
    """One peer's window, told what acknowledgements say."""

    def __init__(self, settings: Settings = FABRIC) -> None:
        self.endpoint = Endpoint(settings=settings)
        self.row = self.endpoint.peer()
        self.params = self.endpoint.engine.params[0]
        self.now = us(1000)

    def hears(self, delay: float, marked: int = 0, size: int = MTU, penalty: int = 0, restore: int = 0) -> None:
        """An acknowledgement of `size` bytes whose packet queued for `delay` us."""
        qpcc.on_ack(self.endpoint.engine, self.now, 0, size, marked, us(BASE + delay), penalty, restore)

    def settles(self, cwnd: float) -> None:
        """Start from a window with no increase collected."""
        self.row.cwnd = cwnd
        self.row.inc_bytes = 0.0
        self.row.received = 0
        self.row.adjusted_at = self.row.eta_at = self.now

    def is_trimmed(self, size: int = MTU) -> None:
        qpcc.on_nack(self.endpoint.engine, self.now, 0, size)

    def passes(self, micros: float) -> None:
        self.now += us(micros)


@pytest.mark.clause("nscc-defaults")
def test_default_table_at_800_gbps_and_12_us() -> None:
    window = Window()
    assert FABRIC.bdp == 1_200_000
    assert window.row.cwnd == window.row.max_cwnd == pytest.approx(1_800_000)
    assert window.params.target_delay == us(TARGET)
    assert window.params.fi == 163_840
    assert round(window.params.eta) == 4915
    assert window.params.fi_scale == 2.0
    assert (window.params.gamma, window.params.max_md_jump, window.params.qa_gate) == (0.8, 0.5, 3)
    assert window.params.adjust_bytes == 8 * MTU
    assert window.params.qa_threshold == us(4 * TARGET)


@pytest.mark.clause("nscc-defaults")
def test_target_delay_is_the_whole_base_without_trimming() -> None:
    assert Window(replace(FABRIC, trimming=False)).params.target_delay == us(BASE)


@pytest.mark.clause("nscc-proportional")
def test_unmarked_with_little_delay_grows_in_proportion_to_the_head_room() -> None:
    grown = []
    for delay in (2.0, 6.0):
        window = Window()
        window.settles(500_000.0)
        window.hears(delay)
        grown.append(window.row.inc_bytes)
    assert grown[1] > 0
    assert grown[0] / grown[1] == pytest.approx((TARGET - 2.0) / (TARGET - 6.0))
    alpha = 4 * MTU * 8 * (TARGET / 12) / us(TARGET)
    assert grown[0] == pytest.approx(alpha * MTU * us(TARGET - 2.0))


@pytest.mark.clause("nscc-fast")
def test_almost_no_delay_for_a_whole_window_grows_fast() -> None:
    window = Window()
    for _ in range(4):
        window.settles(20_000.0)
        window.hears(0.0)
        assert not window.row.is_fast
    for _ in range(2):
        window.settles(20_000.0)
        before = window.row.cwnd
        window.hears(0.0)
    assert window.row.is_fast
    assert window.row.cwnd == before + MTU * 2.0
    window.hears(3.0)
    assert not window.row.is_fast


@pytest.mark.clause("nscc-fair")
def test_unmarked_with_long_delay_grows_fairly() -> None:
    window = Window()
    window.settles(500_000.0)
    window.hears(TARGET)
    assert window.row.inc_bytes == 163_840 * MTU
    assert window.row.cwnd == 500_000.0
    for _ in range(8):
        window.hears(TARGET)
    assert 500_000 < window.row.cwnd <= 500_000 + 10 * 163_840 * MTU / 500_000


@pytest.mark.clause("nscc-decrease")
def test_marked_with_long_delay_cuts_once_per_round_trip_and_at_most_by_half() -> None:
    window = Window()
    window.row.average_delay = float(us(100))
    window.hears(30.0, marked=1)
    assert window.row.decreases == 1
    assert window.row.cwnd >= 0.5 * 1_800_000
    before = window.row.cwnd
    window.hears(30.0, marked=1)
    assert window.row.cwnd == pytest.approx(before, rel=0.01)
    window.passes(BASE)
    window.hears(30.0, marked=1)
    assert window.row.decreases == 2


@pytest.mark.clause("nscc-decrease")
def test_cut_is_gamma_times_the_excess() -> None:
    window = Window()
    window.row.average_delay = us(12.0) / (1 - nscc.DELAY_WEIGHT) - us(12) * nscc.DELAY_WEIGHT / (1 - nscc.DELAY_WEIGHT)
    window.row.eta_at = window.row.adjusted_at = window.now
    window.hears(12.0, marked=1)
    assert window.row.cwnd == pytest.approx(1_800_000 * (1 - 0.8 * (12 - TARGET) / 12), rel=1e-6)


@pytest.mark.clause("nscc-no-change")
def test_marked_with_little_delay_changes_nothing() -> None:
    window = Window()
    window.settles(500_000.0)
    window.hears(2.0, marked=1)
    assert (window.row.cwnd, window.row.inc_bytes, window.row.decreases) == (500_000.0, 0.0, 0)


@pytest.mark.clause("nscc-loss")
def test_trim_and_loss_each_take_one_packet_and_never_the_last() -> None:
    window = Window()
    window.is_trimmed()
    assert window.row.cwnd == pytest.approx(1_800_000 - MTU)
    qpcc.on_loss(window.endpoint.engine, window.now, 0, MTU)
    assert window.row.cwnd == pytest.approx(1_800_000 - 2 * MTU)
    for _ in range(1000):
        qpcc.on_loss(window.endpoint.engine, window.now, 0, MTU)
    assert window.row.cwnd == nominal_size(MTU)


@pytest.mark.clause("nscc-loss")
@pytest.mark.parametrize("happens", ["lost", "trimmed"])
def test_packet_that_is_lost_or_trimmed_on_its_way_takes_its_size_from_the_window(happens: str) -> None:
    endpoint = Endpoint(settings=replace(FABRIC, tail_probe=False, max_cwnd=1_000_000))
    endpoint.peer().cwnd = 500_000.0
    endpoint.write(3 * 256)
    endpoint.all_sent()
    if happens == "trimmed":
        endpoint.receives(nack(0, NackReason.TRIMMED))
    else:
        endpoint.waits(100)
        endpoint.peer().adjusted_at = endpoint.peer().eta_at = endpoint.now
        endpoint.receives(sack(-1, (1, 2), path_mark=1))  # marked, little delay: no change by itself
        endpoint.waits(100)  # for what is due by now
    assert endpoint.qp().lost_count == 1
    assert endpoint.peer().cwnd == pytest.approx(500_000 - nominal_size(256), abs=1)


@pytest.mark.clause("nscc-quick-adapt")
def test_quick_adapt_sets_the_window_to_what_got_through_and_then_ignores_old_news() -> None:
    window = Window()
    window.hears(1.0)  # opens the first period, which is not evaluated
    window.row.qa_blocked = True
    window.row.inflight = 900_000
    window.is_trimmed()
    window.hears(1.0, size=20_000)
    window.passes(BASE + TARGET)
    window.is_trimmed()
    assert window.row.quick_adapts == 1
    assert window.row.inc_bytes == 0
    assert window.row.cwnd == 20_000, "what was achieved in the period"
    before = window.row.cwnd
    window.hears(30.0, marked=1)
    window.is_trimmed()
    assert window.row.cwnd == before
    assert window.row.bytes_to_ignore == 900_000


@pytest.mark.clause("nscc-quick-adapt")
@pytest.mark.parametrize("reason", ["enough", "no trigger", "disabled", "room in the window"])
def test_quick_adapt_does_not_act_without_reason(reason: str) -> None:
    window = Window(replace(FABRIC, disable_qa=reason == "disabled"))
    window.hears(1.0)
    window.row.qa_blocked = reason != "room in the window"
    if reason != "no trigger":
        window.is_trimmed()
    window.hears(1.0, size=900_000 if reason == "enough" else 20_000)
    window.passes(BASE + TARGET)
    window.hears(1.0)
    assert window.row.quick_adapts == 0


@pytest.mark.clause("nscc-quick-adapt-judges")
@pytest.mark.parametrize(("trims", "acts"), [(1, 0), (4, 1)])
def test_quick_adapt_judges_a_period_in_which_more_was_trimmed_than_delivered(trims: int, acts: int) -> None:
    window = Window()
    window.hears(1.0)
    window.passes(BASE + TARGET)
    window.hears(1.0)
    for _ in range(trims):
        window.is_trimmed()
    window.passes(BASE + TARGET)
    window.hears(1.0, size=0)
    assert window.row.quick_adapts == acts


@pytest.mark.clause("nscc-quick-adapt-judges")
@pytest.mark.parametrize("cwnd", [1e6, 3.0 * MTU], ids=["room", "full"])
def test_quick_adapt_judges_a_period_in_which_the_window_kept_packets_back(cwnd: float) -> None:
    endpoint = Endpoint(settings=replace(FABRIC, tail_probe=False, max_cwnd=1_000_000))
    endpoint.peer().cwnd = cwnd
    endpoint.write(5 * MTU)
    endpoint.all_sent(free_ports=1)
    assert endpoint.peer().qa_blocked == (cwnd < 5 * MTU)


@pytest.mark.clause("nscc-quick-adapt")
def test_quick_adapt_is_triggered_by_delay_where_nothing_is_trimmed() -> None:
    for trimming, acts in ((False, 1), (True, 0)):
        window = Window(replace(FABRIC, trimming=trimming))
        window.hears(1.0)
        window.row.qa_blocked = True
        window.hears(200.0, size=20_000)
        window.passes(100)
        window.hears(200.0)
        assert window.row.quick_adapts == acts


@pytest.mark.clause("receiver-penalty-obeyed")
def test_receiver_penalty_of_64_halves_the_window_over_one_round_trip() -> None:
    window = Window()
    window.row.cwnd = 400_000.0
    window.row.inflight = 400_000
    for _ in range(100):
        window.settles(window.row.cwnd)
        window.hears(TARGET, size=4000, penalty=64)
    assert window.row.cwnd == pytest.approx(200_000, rel=0.01)


@pytest.mark.clause("receiver-penalty-obeyed")
def test_a_report_that_leaves_a_packet_of_the_window_adds_nothing_to_it() -> None:
    window = Window()
    window.row.inflight = 100_000
    for _ in range(3):
        window.settles(window.row.cwnd)
        window.hears(0.0, size=100_000, penalty=127)
    assert window.row.cwnd < 2 * MTU


@pytest.mark.clause("receiver-penalty-obeyed")
@pytest.mark.parametrize("restore", [0, 1])
def test_window_is_restored_after_a_penalty_when_the_receiver_says_so(restore: int) -> None:
    window = Window()
    window.row.inflight = 100_000
    window.hears(2.0, marked=1, penalty=127, restore=restore)
    assert window.row.cwnd < 101_000
    window.hears(2.0, marked=1)
    assert (window.row.cwnd >= 1_800_000 * 0.99) == bool(restore)


@pytest.mark.clause("nscc-base-rtt")
def test_base_round_trip_follows_the_least_seen_and_the_window_with_it() -> None:
    window = Window(replace(FABRIC, base_rtt_measured=True))
    window.hears(-4.0)
    assert window.row.base_rtt == us(8)
    assert window.row.max_cwnd == pytest.approx(1.5 * 800e9 / 8 * 8e-6)
    window.hears(0.0)
    assert window.row.base_rtt == us(8)


@pytest.mark.clause("nscc-clamp")
def test_window_stays_between_one_packet_and_its_maximum() -> None:
    window = Window()
    for _ in range(100):
        window.passes(12)
        window.hears(0.0, size=100_000)
        assert window.row.cwnd <= window.row.max_cwnd
    window.row.average_delay = float(us(1000))
    for _ in range(100):
        window.passes(12)
        window.hears(1000.0, marked=1)
        assert window.row.cwnd >= MTU


def test_delay_without_a_mark_is_not_blamed_in_the_average() -> None:
    blamed, excused = Window(), Window()
    blamed.hears(30.0, marked=1)
    excused.hears(30.0, marked=0)
    assert excused.row.average_delay == pytest.approx(nscc.DELAY_WEIGHT * 0.25 * us(BASE))
    assert blamed.row.average_delay == pytest.approx(nscc.DELAY_WEIGHT * us(30))


def test_acknowledgement_without_a_sample_uses_the_average() -> None:
    window = Window()
    window.row.average_delay = float(us(100))
    qpcc.on_ack(window.endpoint.engine, window.now, 0, MTU, 1, 0, 0, 0)
    assert window.row.decreases == 1
    assert window.row.srtt == 0


@pytest.mark.clause("cc-none")
def test_algorithm_none_never_closes_the_window() -> None:
    window = Window(replace(FABRIC, algorithm="none"))
    window.row.inflight = 1 << 40
    assert qpcc.may_send(window.endpoint.engine, 0, MTU)
    window.is_trimmed()
    window.hears(100.0, marked=1)
    assert window.row.cwnd == window.row.max_cwnd
    assert window.row.srtt > 0, "round trips are measured all the same"


@pytest.mark.clause("rtt-smoothing")
def test_round_trip_is_smoothed_as_rfc_6298_says() -> None:
    window = Window()
    window.hears(0.0)
    assert (window.row.srtt, window.row.rttvar) == (us(12), us(6))
    window.hears(8.0)
    assert window.row.rttvar == us(6) + ((us(8) - us(6)) >> 2)
    assert window.row.srtt == us(12) + (us(8) >> 3)


@pytest.mark.clause("rtt-smoothing")
@pytest.mark.clause("nscc-decrease")
@pytest.mark.parametrize("round_trip_ms", [2.0, 6.0, 8.0, 8.5, 10.0, 20.0])
def test_delay_beyond_the_wrap_of_a_timestamp_is_measured_and_shrinks_the_window(round_trip_ms: float) -> None:
    pair = Pair(NetworkConditions(delay_us=500 * round_trip_ms, mark=1.0), timeout_us=100_000)
    pair.write(1, 0, 20 * 256, 0)
    pair.run(stop=pair.is_done)
    assert pair.peer().srtt == pytest.approx(round_trip_ms * PS_PER_MS, rel=0.001)
    assert pair.peer().cwnd < 0.7 * pair.peer().max_cwnd


@pytest.mark.clause("nscc-decrease")
@pytest.mark.parametrize(
    ("trimming", "delay", "shrinks"), [(False, 100.0, True), (False, 40.0, False), (True, 100.0, False)]
)
def test_a_standing_queue_that_nothing_marks_shrinks_the_window_where_nothing_trims(
    trimming: bool, delay: float, shrinks: bool
) -> None:
    window = Window(replace(FABRIC, trimming=trimming))
    window.settles(400_000.0)
    for _ in range(200):
        window.hears(delay)
        window.passes(5)
    assert (window.row.cwnd < 300_000) == shrinks


def test_without_trimming_the_window_is_cut_once_per_smoothed_round_trip() -> None:
    window = Window(replace(FABRIC, trimming=False))
    window.row.average_delay = float(us(2000))
    window.row.srtt = us(2000)
    for _ in range(400):
        window.hears(2000.0)
        window.passes(10)
    assert 2 <= window.row.decreases <= 3, "4 ms of round trips of 2 ms"


@pytest.mark.parametrize(("trimming", "acts"), [(False, 1), (True, 0)])
def test_quick_adapt_counts_losses_as_trims_where_nothing_is_trimmed(trimming: bool, acts: int) -> None:
    window = Window(replace(FABRIC, trimming=trimming))
    window.hears(1.0)
    window.hears(200.0, size=20_000)
    for _ in range(10):
        qpcc.on_loss(window.endpoint.engine, window.now, 0, MTU)
    window.passes(100)
    window.hears(200.0)
    assert window.row.quick_adapts == acts


# Networks of unknown rate: the window is bounded by what they deliver

UNKNOWN = Settings(
    mtu=MTU,
    link_gbps=100.0,
    base_rtt_us=BASE,
    base_rtt_measured=False,
    trimming=False,
    initial_cwnd=1 << 17,
    max_cwnd=3 << 20,
    target_delay_us=2000.0,
    bound_by_delivery=True,
)


def deliver(window: Window, mbps: float, periods: int) -> None:
    """Answers of a network that delivers this rate, to a sender that always fills the window."""
    for _ in range(periods * 20):
        window.passes(200.0)
        window.row.qa_blocked = True
        window.hears(0.0, size=round(mbps * 200.0 / 8))


@pytest.mark.clause("nscc-unknown-rate")
def test_window_of_an_unknown_network_doubles_with_what_is_delivered() -> None:
    window = Window(UNKNOWN)
    assert window.row.cwnd == 1 << 17
    window.hears(0.0, size=1 << 17)
    assert window.row.cwnd <= 1 << 18


@pytest.mark.clause("nscc-unknown-rate")
@pytest.mark.parametrize("mbps", [40.0, 400.0, 4000.0])
def test_window_is_bounded_by_twice_what_the_network_delivers(mbps: float) -> None:
    window = Window(UNKNOWN)
    deliver(window, mbps, 20)
    product = mbps / 8 * (BASE + 2000.0)
    assert window.row.cwnd == pytest.approx(2 * product, rel=0.05)


@pytest.mark.clause("nscc-unknown-rate")
def test_window_follows_a_network_that_becomes_faster_and_forgets_slowly() -> None:
    window = Window(UNKNOWN)
    deliver(window, 40.0, 20)
    deliver(window, 4000.0, 1)
    fast = window.row.max_cwnd
    assert fast > 50 * 2 * 40 / 8 * 2012
    deliver(window, 40.0, 1)
    assert window.row.max_cwnd > fast / 2


@pytest.mark.clause("nscc-unknown-rate")
def test_sender_with_little_to_send_says_nothing_about_the_network() -> None:
    window = Window(UNKNOWN)
    deliver(window, 4000.0, 20)
    known = window.row.max_cwnd
    for _ in range(1000):
        window.passes(3000.0)
        window.row.qa_blocked = False
        window.hears(0.0, size=256)
    assert window.row.max_cwnd == known


LONG_PATHS = Settings(  # as over sockets, where neither the path nor its rate is known
    base_rtt_us=100.0, base_rtt_measured=False, base_rtt_followed=True, trimming=False, bound_by_delivery=True,
    target_delay_us=2_000.0, initial_cwnd=1 << 17, max_cwnd=3 << 20, link_gbps=100.0,
)  # fmt: skip
RATE = 460e6  # bytes/s


def delivered(window: Window, path_ms: float, seconds: float, varies: float = 0.0) -> float:
    """Return the bytes/s of the second half: a window's worth is on a path with one queue, and is answered in order.

    A round trip takes as long as the path, or as the queue takes to send a window; up to a share of it more.
    """
    drawn = random.Random(1)
    count, begun, end = 0.0, window.now, window.now + us(seconds * 1e6)
    while window.now < end:
        flight = float(window.row.cwnd)
        took_us = max(path_ms * 1e3, flight / RATE * 1e6) + varies * path_ms * 1e3 * drawn.random()
        pieces = max(1, min(int(flight) // (8 * MTU), 16))
        for _ in range(pieces):
            window.passes(took_us / pieces)
            window.row.qa_blocked = True  # there is always more to send
            qpcc.on_ack(window.endpoint.engine, window.now, 0, int(flight / pieces), 0, us(took_us), 0, 0)
            count += flight / pieces if window.now > (begun + end) // 2 else 0
    return count / (seconds / 2)


@pytest.mark.clause("base-round-trip")
@pytest.mark.parametrize("path_ms", [0.1, 1.0, 4.0, 5.0, 10.0, 20.0, 100.0])
@pytest.mark.needs("jit")  # hundreds of round trips
def test_a_long_path_is_filled(path_ms: float) -> None:
    """The largest window is what the receiver can hold and what is under way."""
    window = Window(LONG_PATHS)
    assert delivered(window, path_ms, 8.0) > 0.8 * RATE
    assert window.row.max_cwnd < LONG_PATHS.max_cwnd + RATE * path_ms / 1e3


@pytest.mark.clause("base-round-trip")
@pytest.mark.parametrize("path_ms", [20.0, 100.0])
@pytest.mark.needs("jit")  # hundreds of round trips
def test_a_long_path_whose_round_trips_vary_is_filled_too(path_ms: float) -> None:
    """By a fifth, as where processes wait for a processor: a tenth on average, which leaves 0.9 of the rate."""
    assert delivered(Window(LONG_PATHS), path_ms, 8.0, varies=0.2) > 0.8 * 0.9 * RATE


@pytest.mark.clause("base-round-trip")
@pytest.mark.needs("jit")  # hundreds of round trips
def test_a_path_that_becomes_longer_and_shorter_again_is_followed() -> None:
    window = Window(LONG_PATHS)
    for path_ms in (0.1, 10.0, 40.0, 1.0, 0.1):
        assert delivered(window, path_ms, 8.0) > 0.8 * RATE
        assert window.row.base_rtt <= us(max(path_ms, 0.1) * 1e3 * 1.3)


@pytest.mark.clause("base-round-trip")
def test_a_queue_of_its_own_does_not_pass_for_the_path() -> None:
    window = Window(replace(LONG_PATHS, max_cwnd=64 << 20))
    delivered(window, 0.1, 0.5)
    window.row.cwnd = float(30 << 20)  # a queue of 65 ms
    delivered(window, 0.1, 4.0)
    assert window.row.base_rtt == us(100)
    assert window.row.srtt < us(8_000)


@pytest.mark.clause("base-round-trip")
def test_the_least_window_has_two_packets_for_each_queue_pair_that_wants_to_send() -> None:
    window = Window(LONG_PATHS)
    for waiting in (0, 1, 5):
        window.row.ready_count = waiting
        for _ in range(1000):
            qpcc.on_loss(window.endpoint.engine, window.now, 0, MTU)
        assert window.row.cwnd == 2 * max(waiting, 1) * nominal_size(MTU)
