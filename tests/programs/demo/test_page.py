import re
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from openmrc.programs.demo.result import DemoResult, Outage, RateSample, SinglePath
from openmrc.programs.demo.view import View, comparisons, drawing, page, report, robust_most
from openmrc.report.strips import TOP
from tests.programs.demo.planes import plane

NAME = "{http://www.w3.org/2000/svg}"


def result() -> DemoResult:
    samples = [
        RateSample(at=n / 10, gbps=2.0, planes=[1.0, 0.0 if 3 < n < 7 else 1.0], evs=[{"GOOD": 8}] * 2)
        for n in range(1, 11)
    ]
    outages = [Outage(plane=1, down=0.3, up=0.6)]
    return DemoResult(
        ok=True, bytes=10, sha256="ab", faults="", planes=[plane(0), plane(1)], samples=samples, outages=outages
    )


def shades(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [each for each in root.iter(f"{NAME}rect") if each.get("class") == "shade"]


def test_the_drawing_marks_the_outage_where_it_was() -> None:
    root = ElementTree.fromstring(drawing(result()))
    in_all, in_plane = shades(root)
    assert in_all.attrib["x"] == in_plane.attrib["x"]
    assert abs(float(in_plane.attrib["width"]) - 0.3 * 840) < 1
    assert len(list(root.iter(f"{NAME}path"))) == 3


def test_an_outage_after_the_last_byte_is_not_drawn() -> None:
    late = result()
    late.outages = [Outage(plane=1, down=1.5, up=2.0), Outage(plane=0, down=0.9, up=3.0)]
    _, shade = shades(ElementTree.fromstring(drawing(late)))
    assert abs(float(shade.attrib["width"]) - 0.1 * 840) < 1


def test_a_failure_is_on_the_page_and_its_text_escaped() -> None:
    failed = result()
    failed.ok, failed.error = False, "no <b>answer</b>"
    assert "FAILED: no &lt;b&gt;answer&lt;/b&gt;" in page(failed)
    assert "OK 10 bytes" in page(result())


def test_a_run_without_samples_names_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    report(DemoResult(faults="", outages=[], error="no answer"))
    assert capsys.readouterr().out == "FAILED: no answer\n"


def test_the_strips_on_the_terminal_go_blank_where_a_plane_was_down(capsys: pytest.CaptureFixture[str]) -> None:
    report(result())
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  MRC, plane 1"))
    assert lines[at].split("|")[1] == "███   ████"
    assert lines[at + 1].strip() == "···"
    assert lines[-1].startswith("OK 10 bytes, sha256 ab, longest stall ")


@pytest.mark.parametrize(("is_terminal", "width", "bar"), [(False, 40, 6), (True, 100, 32), (True, 40, 6)])
def test_a_plane_that_is_down_is_said_while_it_is(
    is_terminal: bool, width: int, bar: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmrc.programs.demo.view.LINE_SECONDS", 0.0)
    written = StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=width, color_system=None)
    shown = result()
    view = View(console, "MRC", range(2), shown.outages)
    for sample in shown.samples:
        view.show(sample)
        if is_terminal:
            view._live.refresh()
    view.close()
    assert f"1 {'░' * bar}  0.00 down" in written.getvalue()
    assert f"0 {'█' * bar}  1.00" in written.getvalue()


def test_a_plane_that_does_not_come_up_stays_down() -> None:
    assert Outage(plane=0, down=1.0, up=None).covers(99.0)
    assert not Outage(plane=0, down=1.0, up=None).covers(0.9)


def test_one_outlier_does_not_flatten_the_rest() -> None:
    rates = [1.0] * 99 + [50.0]
    assert robust_most(rates) < 2
    assert robust_most([]) == 1.0


def test_the_names_of_the_strips_are_not_cut_at_the_edge() -> None:
    shown = result()
    for sample in shown.samples:
        sample.gbps, sample.planes = 250.0, [125.0, 125.0]
    texts = [
        text for text in ElementTree.fromstring(drawing(shown)).iter(f"{NAME}text") if "text-anchor" in text.attrib
    ]
    names = [text for text in texts if text.attrib["text-anchor"] == "end"]
    assert len(names) == 6
    assert all(float(text.attrib["x"]) >= 7 * len(text.text or "") for text in names), "a letter takes at most 7 px"


def test_a_rate_above_the_scale_stays_inside_its_strip() -> None:
    shown = result()
    shown.samples[-1].gbps = 1000.0
    root = ElementTree.fromstring(drawing(shown))
    found = re.findall(r",(-?[\d.]+)", " ".join(path.attrib["d"] for path in root.iter(f"{NAME}path")))
    assert min(map(float, found)) >= TOP


def test_the_table_says_when_a_plane_was_back_in_use() -> None:
    shown = result()
    assert "after 100 ms" in page(shown)
    assert "never down" in page(shown)
    shown.samples = shown.samples[:6]
    assert "not before the end" in page(shown)
    shown.outages[0].up = None
    assert "not back" in page(shown)


def compared() -> DemoResult:
    """Return a result with TCP over plane 1, which stays silent until 0.9 s although the plane is up from 0.6 s on."""
    shown = result()
    samples = [RateSample(at=n / 10, gbps=0.0 if 3 < n < 19 else 3.0, planes=[1.0], evs=[{}]) for n in range(1, 21)]
    shown.single_path = SinglePath(plane=1, gbps=1.5, longest_stall_ms=1600.0, samples=samples)
    return shown


def test_tcp_stands_below_mrc_on_the_same_scale_with_the_outages_of_its_plane() -> None:
    drawn = drawing(compared())
    root = ElementTree.fromstring(drawn)
    assert len(list(root.iter(f"{NAME}path"))) == 4
    assert drawn.count("0 to 3.3 Gb/s") == 2
    assert len(shades(root)) == 3


def test_the_longest_pauses_of_both_are_said_in_one_sentence() -> None:
    shown = compared()
    shown.longest_stall_ms = 12.3
    said = "longest pause of the receiver: MRC over 2 planes 12 ms, TCP over plane 1 alone 1,600 ms"
    assert list(comparisons(shown)) == [said]
    assert said in page(shown)
