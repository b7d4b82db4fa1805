from openmrc.programs.demo.result import RateSample, returned_after
from openmrc.programs.demo.view import spark


def sample(at: float, *planes: float) -> RateSample:
    return RateSample(at=at, done=0, gbps=sum(planes), planes=list(planes), evs=[{} for _ in planes], retransmitted=0)


def test_a_spark_line_shows_nothing_little_and_most() -> None:
    assert spark([0.0, 1.0, 8.0, 4.1], 4, 8.0) == " ▂█▅"


def test_many_values_share_columns_by_their_mean() -> None:
    assert spark([0, 8] * 50, 10, 8.0) == "▅" * 10
    assert len(spark(list(range(7)), 64, 6)) == 7


def test_no_values_and_no_scale_draw_blanks() -> None:
    assert spark([], 3, 1.0) == "   "
    assert spark([1.0], 3, 0.0) == "   "


def test_a_plane_is_back_when_it_carries_a_twentieth_of_its_best() -> None:
    samples = [sample(0.1, 2.0), sample(0.2, 0.0), sample(0.3, 0.0), sample(0.4, 0.05), sample(0.5, 1.0)]
    assert returned_after(samples, 0, 0.2) is not None
    assert abs((returned_after(samples, 0, 0.2) or 0) - 0.3) < 1e-9
    assert returned_after(samples[:4], 0, 0.2) is None
