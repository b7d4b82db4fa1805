import msgspec
import pytest

from openmrc.base.faults import Schedule
from openmrc.programs.demo.result import (
    SAMPLE_SECONDS,
    DemoResult,
    Outage,
    RateSample,
    Recorder,
    TransferResult,
    outages_of,
    story_faults,
    unused_planes,
)
from openmrc.programs.endpoint.shares import PlaneShare
from tests.programs.demo.planes import plane


def planes_with(*evs: dict[str, int]) -> list[PlaneShare]:
    return [msgspec.structs.replace(plane(number), evs=each) for number, each in enumerate(evs)]


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


@pytest.mark.parametrize(("found", "error"), [("ab", None), ("cd", "what arrived has SHA-256 cd, expected ab")])
def test_another_hash_is_named(found: str, error: str | None) -> None:
    result = DemoResult(faults="", outages=[])
    result.judge(found, "ab")
    assert (result.ok, result.error, result.sha256) == (error is None, error, found)


def test_a_recorder_takes_a_sample_each_tenth_and_the_longest_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, transfer, shown = [0.0], TransferResult(), list[RateSample]()
    monkeypatch.setattr("openmrc.programs.demo.result.time.monotonic", lambda: clock[-1])
    recorder = Recorder(transfer, shown.append, lambda: [(int(clock[-1] * 1e9), {"GOOD": 8})], began=0.0)
    for at, done in ((0.05, 100), (0.125, 25_000_000), (0.2, 25_000_000), (0.25, 25_000_000), (0.5, 50_000_000)):
        clock.append(at)
        waited = recorder.count(done)
    assert [each.at for each in shown] == [0.125, 0.25, 0.5]
    assert [each.gbps for each in shown] == [1.6, 0.0, 0.8]
    assert [each.planes for each in shown] == [[8.0]] * 3
    assert transfer.samples == shown
    assert (transfer.longest_stall_ms, waited) == (375.0, 0.375)
    assert (transfer.bytes, transfer.seconds, transfer.gbps) == (50_000_000, 0.5, 0.8)
    clock.append(0.5 + 2 * SAMPLE_SECONDS)
    recorder.sample()
    assert (len(shown), transfer.longest_stall_ms, transfer.seconds) == (4, 375.0, 0.5)


def test_planes_that_came_up_again_must_be_in_use_at_the_end() -> None:
    outages = [Outage(plane=1, down=1.0, up=2.0), Outage(plane=2, down=1.0, up=None), Outage(plane=3, down=3.0, up=4.0)]
    good = {"GOOD": 8}
    planes = planes_with(good, {"GOOD": 7, "SKIP": 1}, {"ASSUMED_BAD": 8}, {"GOOD": 6, "ASSUMED_BAD": 2})
    assert unused_planes(planes, outages) == [3]
    assert unused_planes(planes_with(*[good] * 4), outages) == []
    assert unused_planes(planes_with(good, {"SILENT": 7, "SKIP": 1}, good, good), outages) == [1]


def test_a_plane_that_went_down_once_more_is_not_expected_back() -> None:
    outages = [Outage(plane=0, down=1.0, up=2.0), Outage(plane=0, down=3.0, up=None)]
    assert unused_planes(planes_with({"ASSUMED_BAD": 8}), outages) == []


def test_the_demo_fails_when_a_plane_is_not_back() -> None:
    planes = [plane(0), plane(1)]
    result = DemoResult(faults="", planes=planes, outages=[Outage(plane=1, down=1.0, up=2.0)])
    result.judge("ab", "ab")
    assert result.ok
    planes[1].evs = {"ASSUMED_BAD": 3, "GOOD": 5}
    result.judge("ab", "ab")
    assert not result.ok
    assert result.error is not None
    assert result.error.endswith("not back in use: 1")
