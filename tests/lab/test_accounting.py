"""Every packet that a node gives to a port arrives, waits, or is lost for a cause that is named."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from bench.lab.overload import DSCP_TRIMMABLE, Flooded, flood, settled
from openmrc.base.faults import Schedule
from openmrc.lab.accounting import DeviceCounters, Losses, QueueCounters, account
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab
from openmrc.lab.port import PortCounters
from openmrc.lab.status import LinkStatus, status

SENDERS, TARGET, SECONDS = [1, 2, 3], 0, 0.4
BEST_EFFORT, CONTROL = 0, 46


@pytest.fixture(scope="module")
def quiet_lab(lab: Lab) -> Lab:
    """The lab once its ports have announced their multicast groups, whose packets a full queue would drop."""
    settled(lab.name)
    return lab


def links(lab: Lab) -> list[LinkStatus]:
    return status(lab.name, with_sids=False).links


def lost_in(lab: Lab, before: list[LinkStatus]) -> Counter[str]:
    """Return what was lost since, by cause, after checking that nothing else is missing on any link."""
    after, causes = links(lab), Counter[str]()
    assert [link.name for link in after if link.sent != link.arrived + link.losses.total] == []
    for old, new in zip(before, after, strict=True):
        causes.update(new.losses.named())
        causes.subtract(old.losses.named())
    return +causes


def overload(lab: Lab, dscp: int) -> tuple[Flooded, Counter[str]]:
    before = links(lab)
    flooded = flood(lab, SENDERS, TARGET, SECONDS, dscp)
    return flooded, lost_in(lab, before)


def test_a_trimmed_packet_takes_the_room_of_its_headers_only(quiet_lab: Lab) -> None:
    before = links(quiet_lab)
    flooded, lost = overload(quiet_lab, DSCP_TRIMMABLE)
    assert not lost
    assert flooded.whole + flooded.trimmed == flooded.sent
    # Three ports offer what one can carry, as far as the processors let them.
    assert flooded.trimmed > flooded.whole // 4
    assert flooded.trimmed == sum(new.trimmed - old.trimmed for old, new in zip(before, links(quiet_lab), strict=True))


def test_what_may_not_be_trimmed_is_lost_to_a_full_queue(quiet_lab: Lab) -> None:
    flooded, lost = overload(quiet_lab, BEST_EFFORT)
    assert flooded.trimmed == 0
    assert lost == {"full": flooded.sent - flooded.whole}


def test_control_beyond_the_rate_of_a_port_is_lost_and_called_so(quiet_lab: Lab) -> None:
    flooded, lost = overload(quiet_lab, CONTROL)
    assert lost == {"control_full": flooded.sent - flooded.whole}


@pytest.mark.parametrize("where", ["h1 port 0", "p0-t0-00<>p0-t1-00"])
def test_what_a_pulled_cable_takes_has_a_name(quiet_lab: Lab, where: str) -> None:
    breaker, before = Breaker(quiet_lab.name), links(quiet_lab)
    pulling = threading.Thread(target=breaker.run, args=[Schedule.parse(f"at: 100ms, for: 100ms, down: {where}", "")])
    try:
        pulling.start()
        flood(quiet_lab, SENDERS, TARGET, SECONDS)
    finally:
        pulling.join()
        breaker.clear()
    assert lost_in(quiet_lab, before)["faults"] > 0


def counted(sent: int, arrived: int, was_down: bool) -> tuple[Losses, int]:
    port = PortCounters(packets=sent - 6, dropped=1, control_dropped=2, lost=3)
    nobody = DeviceCounters(received=0, refused=5)
    found = account(port, QueueCounters(dropped=4, waiting=0), nobody, DeviceCounters(arrived, 0), was_down)
    return found.losses, found.unaccounted


def test_every_cause_has_its_own_counter() -> None:
    losses, rest = counted(sent=100, arrived=85, was_down=False)
    assert losses.named() == {"full": 1, "control_full": 2, "faults": 3, "late": 4, "refused": 5}
    assert rest == 0


def test_a_rest_is_flushed_only_where_a_port_was_down() -> None:
    assert counted(sent=100, arrived=78, was_down=True)[0].flushed == 7
    losses, rest = counted(sent=100, arrived=78, was_down=False)
    assert (losses.flushed, rest) == (0, 7)
