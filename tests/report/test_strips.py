import pytest

from openmrc.report.strips import Strip, text
from openmrc.report.svg import ShadedTime


def blocks(values: list[float], most: float) -> str:
    (line,) = text([Strip("rate", range(len(values)), values, most, "Gb/s")])
    return line.split("|")[1]


def test_a_line_shows_nothing_little_and_most() -> None:
    assert blocks([0.0, 1.0, 8.0, 4.1, 99.0], 8.0) == " ▂█▅█"


@pytest.mark.parametrize(("count", "columns"), [(7, 7), (64, 64), (100, 64)])
def test_many_values_share_columns_by_their_mean(count: int, columns: int) -> None:
    assert blocks([4.0] * count, 8.0) == "▅" * columns


def test_shaded_times_are_dots_below_their_columns() -> None:
    strip = Strip("plane 0", [0.5, 1.5, 2.5, 3.5], [1.0] * 4, 1.0, shades=[ShadedTime(1.0, 3.0, "down")])
    line, marks = text([strip])
    assert marks.index("·") == line.index("|") + 2
    assert marks.count("·") == 2
