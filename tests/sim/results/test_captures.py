"""Capture files of simulated NICs: the same packets at both ends, real bytes, read by programs that others wrote."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.report.folder import write_captures
from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.scenario.description import Scenario, Transport, load
from openmrc.sim.simulate import simulate
from openmrc.units import PS_PER_US
from openmrc.wire.capture import Dissected, dissect, find_datagram
from openmrc.wire.codes import CONGESTED, DSCP_TRIMMED, Opcode
from openmrc.wire.pcapng import read_frames
from openmrc.wire.srv6 import usids

SCENARIO = """
name: captured
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {name: mrc, settings: {buffer_bdp: 0.2, ecn_low_bdp: 0.02, ecn_high_bdp: 0.1, evs: 16}}
workloads:
  - {kind: incast, size: 200KB, senders: 12, receiver: 0}
  - {kind: permutation, size: 100KB}
faults:
  - {at: 10us, for: 30us, down: p1-t0-00<>p1-t1-02}
capture: {hosts: [0, 13], limit: 5000}
until: 50ms
"""


def scenario(path: Path, **changes: Any) -> Scenario:
    (path / "s.yaml").write_text(SCENARIO)
    return replace_struct(load(path / "s.yaml"), **changes)


Part = TypeVar("Part", Scenario, Transport)


def replace_struct(made: Part, **changes: Any) -> Part:
    import msgspec

    return msgspec.structs.replace(made, **changes)


def read(path: Path) -> list[tuple[Any, Dissected]]:
    found = []
    with path.open("rb") as file:
        for frame in read_frames(file):
            datagram = find_datagram(frame)
            assert datagram is not None
            found.append((frame, dissect(frame, datagram)))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@pytest.fixture(scope="module")
def run(folder: Path) -> SimulationRun:
    made = scenario(folder)
    done = simulate(made)
    assert write_captures(done, made, folder) == []
    return done


@pytest.fixture(scope="module")
def frames(run: SimulationRun, folder: Path) -> dict[int, list[tuple[Any, Dissected]]]:
    return {nic: read(folder / f"h{nic}.pcapng") for nic in (0, 13)}


def sent_by(frames: list[tuple[Any, Dissected]], source: int, destination: int) -> list[tuple[Any, Dissected]]:
    def is_it(found: Dissected) -> bool:
        ends = (found.datagram.ip.source, found.datagram.ip.destination)
        return tuple(int(end) & 0xFFFF for end in ends) == (source + 1, destination + 1)

    return [(frame, found) for frame, found in frames if is_it(found)]


def said(found: Dissected) -> tuple[int, list[dict[str, Any]]]:
    return found.datagram.udp.source_port, [part.as_json() for part in found.message.parts]


def test_times_rise_and_interfaces_are_planes(frames: dict[int, list[tuple[Any, Dissected]]]) -> None:
    for nic, found in frames.items():
        times = [frame.time_ns for frame, _ in found]
        assert times == sorted(times)
        assert {frame.interface for frame, _ in found} == {f"plane 0 fd00::{nic + 1:x}", f"plane 1 fd00:1::{nic + 1:x}"}


def test_what_leaves_one_nic_arrives_at_the_other_the_same_but_for_what_switches_changed(
    frames: dict[int, list[tuple[Any, Dissected]]],
) -> None:
    for source, destination in ((13, 0), (0, 13)):
        sent = sent_by(frames[source], source, destination)
        arrived = sent_by(frames[destination], source, destination)
        # An opcode and PSN may appear twice (retransmissions): match by everything the header says.
        left = [said(found) for _, found in sent]
        assert arrived
        for _, found in arrived:
            left.remove(said(found))
        assert len(left) < len(sent)


def test_every_header_is_there_and_whole_packets_have_a_right_icrc(
    frames: dict[int, list[tuple[Any, Dissected]]],
) -> None:
    found = [each for some in frames.values() for _, each in some]
    control = [each for each in found if each.message.opcode > Opcode.WRITE_ONLY_IMM]
    data = [each for each in found if each.message.opcode <= Opcode.WRITE_ONLY_IMM]
    assert {each.message.opcode for each in control} >= {Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE}
    assert all(each.icrc_ok for each in control)
    assert all(each.icrc_ok is None for each in data if each.payload_length > 100)
    assert {each.payload_length for each in data if not each.message.trimmed} <= {4096, 200_000 % 4096, 100_000 % 4096}


def test_marks_trims_and_paths_are_seen_where_they_happen(frames: dict[int, list[tuple[Any, Dissected]]]) -> None:
    at_receiver = [found for _, found in frames[0]]
    trimmed = [found for found in at_receiver if found.datagram.ip.dscp >= DSCP_TRIMMED and found.message.trimmed]
    assert trimmed
    assert all(found.payload_length == 0 for found in trimmed)
    assert any(found.datagram.ip.ecn == CONGESTED for found in at_receiver)
    leaving = [found for _, found in sent_by(frames[13], 13, 0)]
    assert all(len(usids(found.datagram.outer[0].outer.destination)) == 5 for found in leaving)  # type: ignore[arg-type]
    reaching = [found for _, found in sent_by(frames[0], 13, 0)]
    assert all(len(usids(found.datagram.outer[0].outer.destination)) == 2 for found in reaching)  # type: ignore[arg-type]


def test_a_limit_is_kept_and_said(run: SimulationRun, tmp_path: Path) -> None:
    from openmrc.sim.scenario.description import Capture

    made = scenario(tmp_path, capture=Capture(hosts=("h13",), limit=50, start="20us"))
    done = simulate(made)
    (note,) = write_captures(done, made, tmp_path)
    assert note.startswith("h13.pcapng ends at its limit of 50 packets; ")
    found = read(tmp_path / "h13.pcapng")
    assert len(found) == 50
    assert found[0][0].time_ns >= 20_000
    assert summary(done)["captures"][0]["packets"] == 50


def test_with_a_longer_snaplen_payload_is_zeros_and_its_icrc_is_right(tmp_path: Path) -> None:
    from openmrc.sim.scenario.description import Capture

    made = scenario(tmp_path, capture=Capture(hosts=(13,), limit=40, snaplen=9000))
    write_captures(simulate(made), made, tmp_path)
    found = [each for _, each in read(tmp_path / "h13.pcapng")]
    assert {each.payload_length for each in found} >= {4096}
    assert all(each.icrc_ok for each in found)
    assert not any(any(each.message.payload) for each in found)


def test_a_capture_changes_nothing_and_is_the_same_for_any_number_of_threads(
    run: SimulationRun, tmp_path: Path
) -> None:
    made = scenario(tmp_path)
    bare = simulate(replace_struct(made, capture=None))
    assert np.array_equal(bare.results.finished, run.results.finished)
    assert bare.results.counters == run.results.counters
    two = simulate(made, threads=2)
    assert np.array_equal(two.results.finished, run.results.finished)
    (tmp_path / "two").mkdir()
    (tmp_path / "one").mkdir()
    write_captures(two, made, tmp_path / "two")
    write_captures(run, made, tmp_path / "one")
    for name in ("h0.pcapng", "h13.pcapng"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hosts": (16,)}, "16 is not a NIC; expected 0 to 15"),
        ({"hosts": ("p0-t0-00",)}, "'p0-t0-00' is not a NIC"),
        ({"hosts": (0, 1), "limit": 9_000_000}, "use a limit of at most 5000000"),
    ],
)
def test_captures_that_cannot_be_are_refused(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    from openmrc.sim.scenario.description import Capture

    with pytest.raises(ConfigError, match=says):
        simulate(scenario(tmp_path, capture=Capture(**changes)))


def test_other_transports_have_no_mrc_packets(tmp_path: Path) -> None:
    made = scenario(tmp_path)
    with pytest.raises(ConfigError, match="uet has no MRC packets"):
        simulate(replace_struct(made, transport=replace_struct(made.transport, name="uet", settings={})))


@pytest.mark.needs("tshark")
def test_wireshark_reads_times_planes_and_base_headers(run: SimulationRun, folder: Path) -> None:
    names = ("frame.interface_name", "frame.time_epoch", "infiniband.bth.opcode", "infiniband.bth.psn", "frame.len")
    fields = [part for name in names for part in ("-e", name)]
    done = subprocess.run(
        ["tshark", "-r", folder / "h13.pcapng", "-T", "fields", *fields],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = read(folder / "h13.pcapng")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == len(found)
    for (frame, dissected), (interface, at, opcode, psn, length) in zip(found, lines, strict=True):
        bth = dissected.message.bth
        assert interface == frame.interface
        assert at == f"{frame.time_ns // 10**9}.{frame.time_ns % 10**9:09d}"
        assert (int(opcode), int(psn), int(length)) == (bth["opcode"], bth["psn"], frame.original_length)


def test_the_first_packet_leaves_at_time_zero_and_arrives_a_path_later(run: SimulationRun) -> None:
    assert run.captured is not None
    first = run.captured.seen[run.captured.taps[13].first]
    assert first.at == 0
    assert first.outgoing == 1
    arrivals = [row.at for row in run.captured.seen if row.outgoing == 0 and row.at > 0]
    assert min(arrivals) > PS_PER_US
