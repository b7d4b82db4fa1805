import pytest

from openmrc.base.faults import Schedule
from openmrc.base.terminal import plain_console
from openmrc.programs.demo.result import DemoResult, Outage, outages_of, story_faults, unused_planes
from openmrc.programs.demo.story import DemoTransfer, Story
from openmrc.programs.demo.view import View
from tests.programs.demo.planes import plane


@pytest.mark.parametrize("planes", [1, 2, 3, 4, 16])
def test_in_the_story_every_silenced_plane_comes_back_before_the_end(planes: int) -> None:
    outages = outages_of(Schedule.parse(story_faults(10.0, planes)), planes)
    assert len(outages) == max(planes - 1, 1)
    assert all(each.up is not None and each.down < each.up < 10.0 for each in outages)


@pytest.mark.parametrize("planes", [2, 4, 16])
def test_in_the_story_one_plane_always_carries(planes: int) -> None:
    outages = outages_of(Schedule.parse(story_faults(10.0, planes)), planes)
    assert 0 not in {each.plane for each in outages}


def test_outages_of_all_planes_and_without_an_end() -> None:
    outages = outages_of(Schedule.parse("at: 1s, down: all; at: 2s, up: plane 0; at: 3s, down: plane 0"), 2)
    assert [(each.plane, each.down, each.up) for each in outages] == [(0, 1.0, 2.0), (1, 1.0, None), (0, 3.0, None)]


@pytest.mark.parametrize(
    ("wrong", "found", "error"),
    [
        (0, "ab", None),
        (2, "ab", "2 pieces arrived with another CRC-32"),
        (0, "cd", "the receiver's memory has SHA-256 cd, expected ab"),
    ],
)
def test_a_wrong_piece_or_another_hash_is_named(wrong: int, found: str, error: str | None) -> None:
    result = DemoResult(ok=False)
    result.judge(wrong, found, "ab")
    assert (result.ok, result.error, result.sha256) == (error is None, error, found)


def test_without_an_outage_there_is_nothing_to_compare_tcp_in() -> None:
    story = Story(DemoTransfer(impair="loss: 1%"))
    story.run_single_path(View(plain_console(), quiet=False), beside_compilation=False)
    assert story.result.single_path is None


def test_planes_that_came_up_again_must_be_in_use_at_the_end() -> None:
    outages = [Outage(plane=1, down=1.0, up=2.0), Outage(plane=2, down=1.0, up=None), Outage(plane=3, down=3.0, up=4.0)]
    evs = [{"GOOD": 8}, {"GOOD": 7, "SKIP": 1}, {"ASSUMED_BAD": 8}, {"GOOD": 6, "ASSUMED_BAD": 2}]
    assert unused_planes(evs, outages) == [3]
    assert unused_planes([{"GOOD": 8}] * 4, outages) == []
    assert unused_planes([{"GOOD": 8}, {"SILENT": 7, "SKIP": 1}, *[{"GOOD": 8}] * 2], outages) == [1]


def test_a_plane_that_went_down_once_more_is_not_expected_back() -> None:
    outages = [Outage(plane=0, down=1.0, up=2.0), Outage(plane=0, down=3.0, up=None)]
    assert unused_planes([{"ASSUMED_BAD": 8}], outages) == []


def test_the_demo_fails_when_a_plane_is_not_back() -> None:
    planes = [plane(0), plane(1)]
    result = DemoResult(ok=False, planes=planes, outages=[Outage(plane=1, down=1.0, up=2.0)])
    result.judge(0, "ab", "ab")
    assert result.ok
    planes[1].evs = {"ASSUMED_BAD": 3, "GOOD": 5}
    result.judge(0, "ab", "ab")
    assert not result.ok
    assert result.error is not None
    assert "plane 1: 3 EVs ASSUMED_BAD" in result.error
