"""`mrc conform`: does a device speak MRC? Runs the conformance tests against it over the wire."""

import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer

from openmrc.conform.captured import PropertyVerdict, judge_trail, read_capture, trails
from openmrc.conform.catalogue import chosen, read_tests, shipped_tests
from openmrc.conform.devices.process import ANSWER_SECONDS, ProcessDevice
from openmrc.conform.explain import explanation, reaction_lines, summary_line, totals
from openmrc.conform.judging import PROPERTIES
from openmrc.conform.language import PartOfDevice, ScriptTest
from openmrc.conform.media.bridge import BridgeMedium
from openmrc.conform.media.sockets import SocketMedium, own_loopback
from openmrc.conform.reports import junit, matrix, record_of, report_record, write_captures
from openmrc.conform.results import TestResult, TestVerdict
from openmrc.conform.suite import SIDES, SuiteReport, run_suite, run_virtually
from openmrc.errors import ConfigError, UsageError
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import failure, give, stoppable
from openmrc.programs.packets.conform_options import CaptureToJudge, ChosenTests, ConformOutput, UnderTest
from openmrc.wire.codes import UDP_PORTS_ACCEPTED

NOTHING_JUDGED_EXIT = 2  # exit code of a run in which every test was unsupported or inconclusive
_ADAPTERS = {
    "endpoint": "openmrc.conform.adapters.endpoint",
    "libmrc": "openmrc.conform.adapters.libmrc",
    "rocev2": "openmrc.conform.adapters.rocev2",
    "by-hand": "openmrc.conform.adapters.by_hand",
}


@with_groups
def conform(what: ChosenTests, subject: UnderTest, capture: CaptureToJudge, output: ConformOutput) -> None:
    """Test whether a device speaks MRC, clause by clause, over the wire.

    Without a device, this package's endpoint is tested. The exit code is 1 if a test failed, 2 if all were unsupported
    or inconclusive.
    """
    capture.check(what, subject, output)
    if capture.from_capture is not None:
        _judge_capture(capture.from_capture, capture, output.as_json)
        return

    wanted = _wanted(what)
    if what.as_list:
        _list(wanted, output.as_json)
        return
    subject.check()
    output.check()
    report, begun = SuiteReport(), time.monotonic()
    try:
        with _noting_end(report), stoppable():
            for result in map(run_virtually, wanted) if subject.virtual else _run(wanted, subject):
                report.results.append(result)
                if not output.as_json:
                    typer.echo(summary_line(result))
    finally:
        seconds = time.monotonic() - begun
        if report.results:
            for path in _written(report, seconds, output):
                typer.echo(f"wrote {path}", err=True)
            _conclude(report, seconds, output.as_json, output.show_reactions)
    if report.is_empty:
        typer.echo("mrc: nothing was judged: every test was unsupported or inconclusive", err=True)
    if not report.is_conforming:
        raise typer.Exit(1 if report.has_failed else NOTHING_JUDGED_EXIT)


@contextmanager
def _noting_end(report: SuiteReport) -> Iterator[None]:
    """Note in the report why a run ends early: results of what ran are worth writing."""
    try:
        yield
    except BaseException as error:
        report.stopped_by = failure(error) or ""
        raise


def _wanted(what: ChosenTests) -> list[ScriptTest]:
    every = [test for path in what.script for test in read_tests(path)] if what.script else shipped_tests()
    return chosen(every, what.tests or [])


def _written(report: SuiteReport, seconds: float, output: ConformOutput) -> Iterator[Path]:
    """Write what was asked for; yield each file when it is written."""
    if output.captures is not None:
        yield from write_captures(report, output.captures)
    if output.junit is not None:
        output.junit.write_text(junit(report), encoding="utf-8")
        yield output.junit
    if output.html is not None:
        runs = [(file.stem, _saved_run(file)) for file in output.earlier or ()]
        output.html.write_text(matrix([*runs, ("this run", report_record(report, seconds))]), encoding="utf-8")
        yield output.html


def _list(tests: Sequence[ScriptTest], as_json: bool) -> None:
    rows = (
        f"{test.id:<15} {test.level.value:<6} {test.part.value:<9} {test.clause:<24} {test.about}" for test in tests
    )
    give({"tests": list(map(record_of, tests))}, as_json, "\n".join(rows))
    if not as_json:
        typer.echo(f"{len(tests)} tests of {len({test.clause for test in tests})} clauses", err=True)


def _run(tests: Sequence[ScriptTest], subject: UnderTest) -> Iterator[TestResult]:
    devices = [ProcessDevice(_command(each), ANSWER_SECONDS + subject.slack) for each in (subject.device, subject.peer)]
    medium = _bridge(subject.bridge, devices) if subject.bridge else _sockets(tests, subject.local, devices)
    if subject.bridge:
        tests = _relayed(tests)
    try:
        yield from run_suite(tests, medium, devices, round(subject.slack * 1e9))
    finally:
        for each in devices:
            each.stop()
        medium.close()


def _sockets(tests: Sequence[ScriptTest], local: list[str] | None, devices: list[ProcessDevice]) -> SocketMedium:
    planes = max((test.wanted.planes for test in tests), default=1)
    return SocketMedium([local] * SIDES if local else own_loopback(planes), devices)


def _bridge(pairs: list[str], devices: list[ProcessDevice]) -> BridgeMedium:
    named = [tuple(part.strip() for part in pair.split(",")) for pair in pairs]
    if any(len(pair) != 2 or not all(pair) for pair in named):
        raise UsageError(f"conform: --bridge takes two interfaces, LEFT,RIGHT, not {' '.join(pairs)!r}")
    return BridgeMedium([(pair[0], pair[1]) for pair in named], devices)


def _relayed(tests: Sequence[ScriptTest]) -> list[ScriptTest]:
    """Return the tests of two devices: a bridge has no address to inject from."""
    relayed = [test for test in tests if test.part == PartOfDevice.BOTH]
    if len(relayed) < len(tests):
        typer.echo(f"a bridge runs the tests of two devices: {len(relayed)} of {len(tests)}", err=True)
    return relayed


def _command(given: str | None) -> list[str]:
    """Return the command of an adapter: one that ships, by its name, or any other."""
    words = shlex.split(given) if given else ["endpoint"]
    if not words:
        raise UsageError("conform: --device and --peer take a command")
    module = _ADAPTERS.get(words[0])
    if module is not None:
        return [sys.executable, "-m", module, *words[1:]]
    if shutil.which(words[0]) is None:
        raise UsageError(f"conform: {words[0]!r} is no program, nor one of the adapters {', '.join(_ADAPTERS)}")
    return words


def _saved_run(path: Path) -> dict[str, Any]:
    try:
        saved: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        if not all({"id", "clause", "verdict"} <= set(test) for test in saved["tests"]):
            raise ValueError("a test lacks its id, clause or verdict")
    except (OSError, ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: not the output of mrc conform --json: {error}") from None
    return saved


def _judge_capture(path: Path, capture: CaptureToJudge, as_json: bool) -> None:
    packets = read_capture(path, capture.port or UDP_PORTS_ACCEPTED, capture.dscps)
    connections = [(name, list(judge_trail(trail))) for name, trail in trails(packets, capture.mpr)]
    if not connections:
        raise ConfigError(f"{path}: no write of MRC in it")
    has_failed = any(each.verdict == TestVerdict.FAIL for _, verdicts in connections for each in verdicts)
    records = [{"connection": name, "properties": verdicts} for name, verdicts in connections]
    lines = [line for name, verdicts in connections for line in (name, *map(_verdict_line, verdicts))]
    give({"ok": not has_failed, "connections": records}, as_json, "\n".join(lines))
    if has_failed:
        raise typer.Exit(1)


def _verdict_line(each: PropertyVerdict) -> str:
    problem = f"  packet {each.problems[0].packet}: {each.problems[0].text}" if each.problems else ""
    about = each.note or PROPERTIES[each.property].about
    return f"  {each.verdict.value:<12} {each.property:<18} {about}{problem}"


def _conclude(report: SuiteReport, seconds: float, as_json: bool, show_reactions: bool) -> None:
    explained = [each for each in report.results if each.failure is not None or each.note]
    lines = [line for each in explained for line in ("", *explanation(each))]
    lines += ["", *reaction_lines(report.reactions())] if show_reactions else []
    give(report_record(report, seconds), as_json, "\n".join([*lines, "", totals(report, seconds)]))
