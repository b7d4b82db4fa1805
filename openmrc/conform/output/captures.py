"""A capture of each test that failed: the packets, and on them what the tester expected, sent and changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from openmrc.conform.conversation import TapEntry
from openmrc.conform.datagrams import TapLink, ip_frame
from openmrc.conform.media.frames import without_link_header
from openmrc.conform.results import TestResult
from openmrc.conform.suite import SuiteReport
from openmrc.wire.pcapng import PcapngWriter


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
                links = result.links[datagram.side]
                frame = without_link_header(datagram.frame) if datagram.frame else _addressed(entry, links)
                interface = sum(len(each) for each in result.links[: datagram.side]) + datagram.plane
                writer.write(interface, epoch + entry.at, frame, comment_on(result, entry))


def _addressed(entry: TapEntry, links: Sequence[TapLink]) -> bytes:
    if entry.datagram is None:
        raise AssertionError("an event is no packet")
    return ip_frame(entry.datagram, links[entry.datagram.plane], entry.from_device)


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
