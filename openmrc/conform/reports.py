"""Results as files: plain objects for `--json` and for comparing runs, JUnit, the page of a matrix, captures."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from openmrc.conform.catalogue import clauses
from openmrc.conform.conversation import TapEntry
from openmrc.conform.datagrams import ip_frame
from openmrc.conform.explain import entry_line, explanation
from openmrc.conform.language import ScriptTest
from openmrc.conform.media.frames import without_link_header
from openmrc.conform.results import NOTHING_JUDGED, TestResult, TestVerdict
from openmrc.conform.suite import SuiteReport
from openmrc.wire.pcapng import PcapngWriter


def record_of(test: ScriptTest) -> dict[str, Any]:
    """Return what a test is about."""
    clause = clauses()[test.clause]
    return {
        "id": test.id,
        "clause": test.clause,
        "section": clause.section,
        "rule": clause.rule,
        "level": test.level.value,
        "device": test.part.value,
        "about": test.about,
        "source": test.source,
        "script": test.text,
    }


def result_record(result: TestResult) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": result.test.id,
        "clause": result.test.clause,
        "level": result.test.level.value,
        "verdict": result.verdict.value,
        "seconds": round(result.seconds, 6),
    }
    if result.verdict == TestVerdict.INFO:
        record["as_openmrc"] = result.is_as_ours
    if result.observed:
        record["observed"] = result.observed
    if result.note:
        record["note"] = result.note
    failure = result.failure
    if failure is not None:
        record |= {"expected": failure.step, "line": failure.line, "came": failure.reason}
        record["packets"] = [
            entry_line(entry) for number in failure.packets for entry in result.entries[number - 1 : number]
        ]
    return record


def report_record(report: SuiteReport, seconds: float) -> dict[str, Any]:
    requester, responder = report.pair()
    return {
        "ok": report.is_conforming,
        **({"error": report.stopped_by} if report.stopped_by else {}),
        "requester": requester,
        "responder": responder,
        "seconds": round(seconds, 3),
        "counts": {verdict.value: count for verdict, count in report.counts().items()},
        "reactions_us": [asdict(each) for each in report.reactions()],
        "tests": [result_record(each) for each in report.results],
    }


def junit(report: SuiteReport) -> str:
    """Return a test suite: failures with their explanation; unsupported and inconclusive tests are skipped ones.

    A run that was stopped has an error, so that the tests that did not run are not taken for passed.
    """
    counts = report.counts()
    suite = ElementTree.Element(
        "testsuite",
        name="mrc conform",
        tests=str(len(report.results) + bool(report.stopped_by)),
        failures=str(counts[TestVerdict.FAIL]),
        errors=str(int(bool(report.stopped_by))),
        skipped=str(sum(counts[verdict] for verdict in NOTHING_JUDGED)),
    )
    for result in report.results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"{result.test.part.value}.{result.test.clause}",
            name=f"{result.test.id} {result.test.about}",
            time=f"{result.seconds:.6f}",
        )
        text = _printable("\n".join(explanation(result)))
        if result.verdict == TestVerdict.FAIL:
            message = result.failure.reason if result.failure is not None else ""
            ElementTree.SubElement(case, "failure", message=_printable(message)).text = text
        elif result.verdict in NOTHING_JUDGED:
            ElementTree.SubElement(case, "skipped", message=_printable(f"{result.verdict.value}: {result.note}"))
        elif result.verdict == TestVerdict.INFO:
            ElementTree.SubElement(case, "system-out").text = text
    if report.stopped_by:
        case = ElementTree.SubElement(suite, "testcase", classname="mrc conform", name="the tests after these")
        ElementTree.SubElement(case, "error", message=_printable(report.stopped_by))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable() or character == "\n")


_WORST_FIRST = ("fail", "inconclusive", "unsupported", "info", "pass")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: left; vertical-align: top; }
.fail { background: #d3333340; font-weight: 600; } .pass { background: #2a9d4a30; }
.info { background: #4a7fd030; } .unsupported, .inconclusive { background: #8883; }
details, small { font-size: .85em; font-weight: normal; } code { font-size: .9em; }
"""


def matrix(runs: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Return an HTML page of runs, each with its name and its record (see `records.report_record`)."""
    by_clause = [_by_clause(record) for _, record in runs]
    known = [name for name in clauses() if any(name in each for each in by_clause)]
    head = "".join(_head(name, record) for name, record in runs)
    rows = "\n".join(_row(name, [each.get(name, []) for each in by_clause]) for name in known)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>MRC conformance</title><style>{_STYLE}</style></head><body>
<h1>MRC conformance</h1>
<p>A row a clause, a column a run of <code>mrc conform</code>: a requester and a responder. A cell shows the worst
verdict of its tests. The text of the specification was not read: clauses are what public sources say of it, in our
words. Where they are silent, the verdict is info: what was seen is reported and judged by nobody.</p>
<table><thead><tr><th>clause</th>{head}</tr></thead><tbody>
{rows}
</tbody></table></body></html>
"""


def _head(name: str, record: dict[str, Any]) -> str:
    """Return the head of a column: who wrote to whom, and how many tests came to what."""
    pair = [f"{part} {record[part]}" for part in ("requester", "responder") if record.get(part)]
    counts = Counter(test["verdict"] for test in record["tests"])
    summed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _WORST_FIRST if counts[verdict])
    return f"<th>{escape(name)}<br><small>{escape(' → '.join(pair))}<br>{summed}</small></th>"


def _by_clause(record: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for test in record["tests"]:
        found.setdefault(test["clause"], []).append(test)
    return found


def _row(name: str, columns: list[list[dict[str, Any]]]) -> str:
    clause = clauses()[name]
    cells = "".join(_cell(tests) for tests in columns)
    return (
        f"<tr><td><b>{escape(clause.section)}</b> <code>{escape(name)}</code><br>{escape(clause.rule)}</td>{cells}</tr>"
    )


def _cell(tests: list[dict[str, Any]]) -> str:
    if not tests:
        return "<td>not run</td>"
    worst = next(verdict for verdict in _WORST_FIRST if any(test["verdict"] == verdict for test in tests))
    lines = "".join(f"<li>{escape(_line(test))}</li>" for test in tests)
    count = f"{len(tests)} test{'s' if len(tests) > 1 else ''}"
    return f'<td class="{worst}">{worst}<details><summary>{count}</summary><ul>{lines}</ul></details></td>'


def _line(test: dict[str, Any]) -> str:
    parts = [test["id"], test["verdict"]]
    if "came" in test:
        parts.append(f"expected {test['expected']}, came: {test['came']}")
    if test.get("observed"):
        parts.append(", ".join(f"{name} = {value}" for name, value in test["observed"].items()))
    if test.get("note"):
        parts.append(test["note"])
    return "; ".join(parts)


def write_captures(report: SuiteReport, folder: Path) -> Iterator[Path]:
    """Write a file for each test that was not fulfilled, and yield their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in report.results:
        if result.failure is not None and result.links:
            path = folder / f"{result.test.id.replace('/', '-')}.pcapng"
            write_capture(result, path)
            yield path


def write_capture(result: TestResult, path: Path) -> None:
    """Write the packets of one test; one interface per side and plane."""
    names = [f"device{side} plane{plane}" for side, links in enumerate(result.links) for plane in range(len(links))]
    begun = result.entries[0].at if result.entries else 0
    epoch = time.time_ns() - begun
    with path.open("wb") as file:
        writer = PcapngWriter(file, names)
        for entry in result.entries:
            if entry.packet is not None:
                datagram = entry.packet.datagram
                if datagram.frame:
                    frame = without_link_header(datagram.frame)
                else:
                    frame = ip_frame(datagram, result.links[datagram.side][datagram.plane], entry.from_device)
                interface = sum(len(each) for each in result.links[: datagram.side]) + datagram.plane
                writer.write(interface, epoch + entry.at, frame, comment_on(result, entry))


def comment_on(result: TestResult, entry: TapEntry) -> str:
    """Return what is to be said about a packet."""
    said = []
    if entry.number == 1:
        said.append(f"{result.test.id}: {result.test.about}")
    if not entry.from_device:
        said.append("sent by the tester")
    if entry.action and entry.action != "pass":
        said.append(f"the relay did: {entry.action}")
    if entry.used_by:
        step = next((each.text for each in result.test.steps if each.line == entry.used_by), "")
        said.append(f"as expected: {step}")
    failure = result.failure
    if failure is not None and entry.number in failure.packets:
        said.append(f"{result.verdict.value}: expected {failure.step}; {failure.reason}")
    return "; ".join(said)
