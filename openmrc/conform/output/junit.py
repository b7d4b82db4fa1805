"""Results as JUnit XML, for continuous integration."""

from __future__ import annotations

from xml.etree import ElementTree

from openmrc.conform.output.explain import explanation
from openmrc.conform.results import TestVerdict
from openmrc.conform.suite import SuiteReport

_SKIPPED = (TestVerdict.UNSUPPORTED, TestVerdict.INCONCLUSIVE)


def junit(report: SuiteReport) -> str:
    """Return a test suite: failures with their explanation; unsupported and inconclusive tests are skipped ones."""
    counts = report.counts()
    suite = ElementTree.Element(
        "testsuite",
        name="mrc conform",
        tests=str(len(report.results)),
        failures=str(counts[TestVerdict.FAIL]),
        skipped=str(sum(counts[verdict] for verdict in _SKIPPED)),
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
        elif result.verdict in _SKIPPED:
            ElementTree.SubElement(case, "skipped", message=_printable(f"{result.verdict.value}: {result.note}"))
        elif result.verdict == TestVerdict.INFO:
            ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable() or character == "\n")
