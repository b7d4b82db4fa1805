"""`mrc decode` for people: one line a packet, filters, a summary; `mrc clause`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from openmrc.conform.catalogue import chosen, clauses_of, shipped_tests
from openmrc.conform.reports import write_capture
from openmrc.conform.suite import run_virtually
from openmrc.programs.main import app
from openmrc.programs.packets.lines import heading, packet_line, plane_width


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trimmed packet and its retransmission."""
    (test,) = chosen(shipped_tests(), ["table-7-3/1"])
    path = tmp_path_factory.mktemp("captures") / "a.pcapng"
    write_capture(run_virtually(test), path)
    return path


def test_a_packet_is_one_line_with_what_is_special(capture: Path) -> None:
    heading, first, second, *rest = run("decode", capture).stdout.splitlines()
    assert heading.split() == ["frame", "time", "s", "plane", "opcode", "QPN", "PSN", "EV", "bytes", "special"]
    assert first.split()[:2] == ["1", "0.000000"]
    assert "WRITE_ONLY" in first
    assert first.endswith("trimmed msn=0")
    assert "NACK" in second
    refused = re.search(r" TRIMMED of (\d+)$", second)
    assert refused is not None
    assert refused[1] in first.split()  # its PSN
    assert any("A rtx" in line for line in rest)


def test_the_heading_stands_above_its_columns_however_long_the_planes_are_called(capture: Path) -> None:
    names, first, *_ = run("decode", capture).stdout.splitlines()
    assert first.index("WRITE_ONLY") == names.index("opcode")


def test_the_summary_counts_packets_by_opcode_and_plane(capture: Path) -> None:
    summary = run("decode", capture).stderr
    assert "device0 plane0" in summary
    assert "1 retransmission, 1 trimmed, 0 marked" in summary


def test_packets_are_chosen_by_opcode_and_qpn(capture: Path) -> None:
    lines = run("decode", capture, "--opcode", "nack").stdout.splitlines()
    assert len(lines) == 2
    elsewhere = run("decode", capture, "--qpn", "0x7e57", "--opcode", "WRITE_ONLY")
    assert elsewhere.exit_code == 1
    assert re.search(r"no such packet; there are packets to the QPNs 0x\w+", elsewhere.stderr)
    assert "not one of" in str(run("decode", capture, "--opcode", "x").exception)
    assert "not a number" in str(run("decode", capture, "--qpn", "x").exception)


def test_the_tree_has_every_field(capture: Path) -> None:
    assert "nack_reason" in run("decode", capture, "-v").stdout


def test_a_clause_is_found_by_the_id_of_any_test_of_devices() -> None:
    assert all([each.id for each in clauses_of(test.id)] == [test.clause] for test in shipped_tests())
    for test in shipped_tests()[::50]:
        (record,) = json.loads(run("clause", test.id, "--json").stdout)["clauses"]
        assert record["id"] == test.clause


def test_a_clause_is_found_by_section_or_id() -> None:
    text = run("clause", "7.5.2").stdout
    assert "sack-trigger-ecn" in text
    assert "openmrc.engine.responder.sacks.on_arrival" in text
    assert "7.5.2/3 (must, responder)" in text
    (record,) = json.loads(run("clause", "psn-new", "--json").stdout)["clauses"]
    assert record["section"] == "§6.3.1"
    assert any(name.startswith("tests/engine/") for name in record["tests"])
    assert "no rule" in str(run("clause", "99").exception)


def test_columns_of_planes_with_addresses_are_aligned() -> None:
    first, later = (
        {"frame": 1, "time_ns": 0, "interface": name, "error": "cut"} for name in ("p fd00::1", "p fd00:3::1")
    )
    width = plane_width(first)
    starts = {packet_line(each, 0, width).index("cut") for each in (first, later)} | {heading(width).index("opcode")}
    assert len(starts) == 1
