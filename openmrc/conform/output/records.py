"""Results for programs: plain objects, for `--json` and for comparing runs."""

from __future__ import annotations

from typing import Any

from openmrc.conform.catalogue import clauses
from openmrc.conform.language import ScriptTest
from openmrc.conform.output.explain import entry_line
from openmrc.conform.results import TestResult, TestVerdict
from openmrc.conform.suite import SuiteReport


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
    """Return what a test came to."""
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
    """Return a whole run."""
    requester, responder = report.pair()
    return {
        "ok": report.is_conforming,
        **({"error": report.stopped_by} if report.stopped_by else {}),
        "requester": requester,
        "responder": responder,
        "seconds": round(seconds, 3),
        "counts": {verdict.value: count for verdict, count in report.counts().items()},
        "reactions_us": [
            {
                "reaction": each.cause,
                "count": each.count,
                "min": each.least / 1e3,
                "median": each.median / 1e3,
                "p99": each.p99 / 1e3,
            }
            for each in report.reactions()
        ],
        "tests": [result_record(each) for each in report.results],
    }
