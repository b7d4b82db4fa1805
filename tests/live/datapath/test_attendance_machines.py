"""Who attends the sockets, and whether posts are gathered: every state with every event, as the tables say."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from openmrc.live.datapath.loop import gathering, leases
from openmrc.live.datapath.loop.gathering import GATHERING_TRANSITIONS, Gathering, GatheringEvent
from openmrc.live.datapath.loop.leases import ATTENDANT_TRANSITIONS, Attendant, AttendantEvent
from spec.state_machines import page
from tests.live.datapath.memory_kernel import endpoint

MACHINES = {
    "Attendant of the sockets": (Attendant, AttendantEvent, ATTENDANT_TRANSITIONS),
    "Gathering of posts": (Gathering, GatheringEvent, GATHERING_TRANSITIONS),
}


@pytest.fixture(scope="module")
def here() -> object:
    with endpoint() as found:
        yield found


@pytest.mark.parametrize(("who", "event"), list(itertools.product(Attendant, AttendantEvent)))
def test_the_attendant_changes_as_the_table_says_and_its_lease_with_it(
    here: object, who: Attendant, event: AttendantEvent
) -> None:
    lease = here.lease  # type: ignore[attr-defined]
    lease.attendant, lease.until = who, 5
    following = ATTENDANT_TRANSITIONS.get((who, event))
    assert leases.move(here.datapath, event, 9) == (following is not None)  # type: ignore[attr-defined]
    assert (lease.attendant, lease.until) == ((who, 5) if following is None else (following, 9))


@pytest.mark.parametrize(("state", "event"), list(itertools.product(Gathering, GatheringEvent)))
def test_gathering_changes_as_the_table_says(here: object, state: Gathering, event: GatheringEvent) -> None:
    here.bursts.gathering = state  # type: ignore[attr-defined]
    following = GATHERING_TRANSITIONS.get((state, event))
    assert gathering.move(here.datapath, event) == (following is not None)  # type: ignore[attr-defined]
    assert here.bursts.gathering == (state if following is None else following)  # type: ignore[attr-defined]


def test_the_architecture_page_shows_the_tables_of_the_loop() -> None:
    text = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page(MACHINES) in text, "put the output of spec.state_machines.page(MACHINES) into docs/architecture.md"
