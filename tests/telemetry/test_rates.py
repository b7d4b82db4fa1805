"""Rates between two looks, totals over queue pairs that end, and the terminal's tables."""

from __future__ import annotations

from types import SimpleNamespace

from rich.console import Console

from openmrc.programs.endpoint.metrics import drawn
from openmrc.telemetry.rates import HostWatch
from openmrc.telemetry.totals import FIELDS, CounterTotals
from tests.telemetry.snapshots_of_tests import endpoint


def counters(**values: int) -> SimpleNamespace:
    return SimpleNamespace(**{**dict.fromkeys(FIELDS, 0), **values})


def test_totals_do_not_fall_when_a_queue_pair_ends_and_its_row_is_used_again() -> None:
    totals = CounterTotals()
    assert totals.take(0, counters(timeouts=3)) == 3
    assert totals.take(0, counters(timeouts=5)) == 2
    totals.forget(0)
    assert totals.take(0, counters(timeouts=4)) == 4
    totals.take(1, counters(duplicates=7))
    assert (totals.totals().timeouts, totals.totals().duplicates) == (9, 7)
    assert totals.take(0, counters(timeouts=1)) == 1  # reset without notice: it began from 0
    assert totals.totals().timeouts == 10


def test_a_look_gives_rates_and_the_worst_paths_first() -> None:
    watch, before, after = HostWatch(), endpoint(2), endpoint(2, at=102.0)
    after.ports[0].transmitted_bytes += 500_000_000
    after.ports[1].lost, after.ports[1].transmitted_packets = 5, 120
    after.queue_pairs[0].evs[1].sent, after.queue_pairs[0].evs[1].lost = 100, 5
    after.ports[1].silent = True
    watch.look([before])
    rates = watch.look([after])
    assert rates.seconds == 2.0
    assert rates.ports[0].transmit_gbps == 2.0
    assert (rates.ports[1].state, rates.ports[1].lost_share) == ("silent", 0.05)
    (link,) = rates.worst_links
    assert (link.port, link.lost_share, link.lost) == (2, 0.05, 5)


def test_a_new_endpoint_has_no_rates_yet_and_one_that_ended_is_forgotten() -> None:
    watch = HostWatch()
    watch.look([endpoint()])
    assert watch.look([endpoint(device="mrc_10.9.9.9", at=500.0)]).ports[0].transmit_gbps == 0.0
    assert watch.look([]).ports == []


def test_the_terminal_shows_planes_paths_and_queue_pairs() -> None:
    watch, after = HostWatch(), endpoint(2, at=101.0)
    after.queue_pairs[0].evs[0].state = "ASSUMED_BAD"
    after.ports[0].evs = [3, 0, 1, 0]
    watch.look([endpoint(2)])
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(drawn(watch.look([after])))
    text = console.export_text()
    for word in ("Planes", "3 GOOD 1 ASSUMED_BAD", "Worst paths", "Queue pairs", "10.0.1.0"):
        assert word in text
    console.print(drawn(HostWatch().look([])))
    assert "MRC_CTL=on" in console.export_text()
