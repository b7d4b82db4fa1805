import re
from xml.etree import ElementTree

from openmrc.programs.demo.result import DemoResult, Outage, RateSample, SinglePath, SinglePathSample
from openmrc.programs.demo.view import comparison, drawing, page, robust_most, schedule_lines, timeline
from openmrc.report.strips import TOP
from tests.programs.demo.planes import plane

NAME = "{http://www.w3.org/2000/svg}"


def result() -> DemoResult:
    samples = [
        RateSample(at=n / 10, done=n, gbps=2.0, planes=[1.0, 0.0 if 3 < n < 7 else 1.0], evs=[{}, {}], retransmitted=0)
        for n in range(1, 11)
    ]
    outages = [Outage(plane=1, down=0.3, up=0.6)]
    return DemoResult(ok=True, bytes=10, sha256="ab", planes=[plane(0), plane(1)], samples=samples, outages=outages)


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
    assert "OK: 10 bytes" in page(result())


def test_the_terminal_timeline_goes_blank_where_a_plane_was_down() -> None:
    lines = timeline(result())
    drawn = next(line for line in lines if line.startswith("  plane 1")).split("|")[1]
    assert drawn == "███   ████"
    assert lines[lines.index(f"  plane 1  |{drawn}|") + 1].strip() == "···"


def test_a_plane_that_does_not_come_up_stays_down() -> None:
    assert Outage(plane=0, down=1.0, up=None).covers(99.0)
    assert not Outage(plane=0, down=1.0, up=None).covers(0.9)
    assert schedule_lines([]) == ["no faults"]


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
    shown.outages[0].returned_ms = 120.0
    assert "after 120 ms" in page(shown)
    assert "never down" in page(shown)


def compared() -> DemoResult:
    """Return a result with TCP over plane 1, which stays silent until 0.9 s although the plane is up from 0.6 s on."""
    shown = result()
    samples = [SinglePathSample(at=n / 10, gbps=0.0 if 3 < n < 19 else 3.0) for n in range(1, 21)]
    shown.single_path = SinglePath(plane=1, gbps=1.5, longest_stall_ms=1600.0, samples=samples)
    return shown


def test_tcp_stands_below_mrc_on_the_same_scale_with_the_outages_of_its_plane() -> None:
    drawn = drawing(compared())
    root = ElementTree.fromstring(drawn)
    assert len(list(root.iter(f"{NAME}path"))) == 4
    assert drawn.count("0 to 3.3 Gb/s") == 2
    assert "plane is up, TCP waits" in drawn
    assert "The same outages for MRC over 2 planes and for TCP over one" in drawn


def test_the_longest_pauses_of_both_are_said_in_one_sentence() -> None:
    shown = compared()
    shown.longest_stall_ms = 12.3
    assert shown.single_path is not None
    said = comparison(shown, shown.single_path)
    assert said == "longest pause of the receiver: MRC over 2 planes 12 ms, TCP over plane 1 alone 1,600 ms"
    assert "<b>1,600 ms</b>" in page(shown)
    assert any(line.startswith("  TCP      |") for line in timeline(shown))
