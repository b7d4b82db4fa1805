"""Results as JUnit XML, for continuous integration."""

from __future__ import annotations

from xml.etree import ElementTree

from openmrc.conform.output.explain import explanation
from openmrc.conform.results import NOTHING_JUDGED, TestVerdict
from openmrc.conform.suite import SuiteReport


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
