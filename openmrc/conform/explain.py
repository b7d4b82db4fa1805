"""Results for people: a line a test, and each failure explained with the packets that came closest."""

from collections.abc import Iterator

from openmrc.conform.catalogue import clauses
from openmrc.conform.conversation import TapEntry
from openmrc.conform.results import TestResult, TestVerdict
from openmrc.conform.suite import ReactionTimes, SuiteReport
from openmrc.wire.message import MrcPacket

_NOT_SHOWN = frozenset(("opcode", "pad", "tver", "p_key", "ftype", "m", "tsr", "ts", "se", "spdcid", "dpdcid"))
_OFTEN_ZERO = frozenset(("type", "next", "vendor_info", "cc_type", "cc_fl", "rcv_cwnd_pen"))
_IN_HEX = frozenset(("dqp", "va", "r_key", "entropy", "sack_bitmap", "immediate", "syndrome"))
FLAG_BITS = 2
FIRST_SHOWN, LAST_SHOWN = 3, 8  # packets of a failed test, beside those that came closest


def summary_line(result: TestResult) -> str:
    rule = result.test.about
    about = rule if len(rule) <= 74 else rule[:73] + "…"
    return f"{result.test.id:<15} {result.test.level.value:<6} {result.verdict.value:<12} {about}"


def explanation(result: TestResult) -> Iterator[str]:
    """Yield the lines that say what was expected, what came, and which packets there were."""
    test, failure = result.test, result.failure
    clause = clauses()[test.clause]
    yield f"{test.id}  {result.verdict.value}: {test.about}"
    yield f"    clause    {clause.section}, {test.clause}: {clause.rule}"
    if clause.reason and clause.status == "ours":
        yield f"    ours      {clause.reason}"
    if failure is not None:
        yield f"    expected  {failure.step or 'answers of the device'}    ({test.source.split(':')[0]}:{failure.line})"
        yield f"    came      {failure.reason}" + _numbers(failure.packets)
    if result.note:
        yield f"    note      {result.note}"
    if result.observed:
        yield "    observed  " + ", ".join(f"{name} = {value}" for name, value in result.observed.items())
    if failure is None:
        return
    begin = result.entries[0].at if result.entries else 0
    for entry in _worth_showing(result, failure.packets):
        mark = "*" if entry.number in failure.packets else " "
        yield f"  {mark} {entry.number:>4}  {(entry.at - begin) / 1e6:>9.3f} ms  {entry_line(entry)}"


def _worth_showing(result: TestResult, closest: tuple[int, ...]) -> Iterator[TapEntry]:
    """Yield the first packets, those that came closest, and the last ones."""
    last = len(result.entries) - LAST_SHOWN
    shown = {*range(1, FIRST_SHOWN + 1), *closest, *range(last + 1, len(result.entries) + 1)}
    return (each for each in result.entries if each.number in shown)


def _numbers(packets: tuple[int, ...]) -> str:
    return f" (packet {', '.join(str(each) for each in packets)})" if any(packets) else ""


def entry_line(entry: TapEntry) -> str:
    """Return one packet or event on one line."""
    if entry.event is not None:
        event = entry.event
        words = [
            f"{name} {value}" for name, value in (("immediate", event.immediate), ("length", event.length)) if value
        ]
        return f"   device {entry.side}: {event.event} {event.status} {' '.join(words)}".rstrip()
    packet = entry.packet
    if packet is None:
        return ""
    arrow = "<" if entry.from_device else ">"
    marks = [entry.action] if entry.action not in ("", "pass") else []
    marks += ["trimmed"] if packet.datagram.is_trimmed else []
    marks += ["marked"] if packet.datagram.ecn == 3 else []
    marks += [packet.problem] if packet.problem and packet.message is not None else []
    marks += [f"supposing {packet.supposing}"] if packet.supposing else []
    said = fields_line(packet.message) if packet.message is not None else ""
    where = f"plane {packet.datagram.plane} ev {packet.datagram.source_port:#x}"
    note = f"  [{', '.join(marks)}]" if marks else ""
    return f"{arrow}  {packet.name:<14} {where}  {said}{note}"


def fields_line(message: MrcPacket) -> str:
    """Return the fields of a packet; those that are zero too, but for flags and what has no use yet."""
    words = []
    for part in message.parts:
        for field in part.header.fields:
            value = part.values.get(field.name)
            says = field.name not in _NOT_SHOWN or (field.name == "m" and part.header.name == "seth")
            if value is None or not says or (value == 0 and (field.width <= FLAG_BITS or field.name in _OFTEN_ZERO)):
                continue
            words.append(f"{field.name}={value:#x}" if field.name in _IN_HEX else f"{field.name}={value}")
    if message.payload:
        words.append(f"payload={len(message.payload)}")
    return " ".join(words)


def totals(report: SuiteReport, seconds: float) -> str:
    parts = [f"{count} {verdict.value}" for verdict, count in report.counts().items() if count]
    differing = sum(1 for each in report.results if each.verdict == TestVerdict.INFO and not each.is_as_ours)
    if differing:
        parts.append(f"{differing} of the info differ from this implementation")
    why = f"; {report.stopped_by}: the tests after these did not run" if report.stopped_by else ""
    return f"{len(report.results)} tests in {seconds:.1f} s: {', '.join(parts) or 'nothing'}{why}"


def reaction_lines(times: list[ReactionTimes]) -> Iterator[str]:
    yield f"{'reaction':<42} {'count':>5} {'min us':>10} {'median us':>10} {'p99 us':>10}"
    for each in times:
        yield f"{each.reaction:<42} {each.count:>5} {each.min:>10.1f} {each.median:>10.1f} {each.p99:>10.1f}"
