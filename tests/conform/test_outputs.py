"""Results for other programs: JUnit, the page of runs, verdicts about captures."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.datagrams import DscpNumbers, TapLink, seal, translations
from openmrc.conform.devices import virtual
from openmrc.conform.media import medium
from openmrc.conform.reports import write_capture
from openmrc.conform.suite import run_virtually
from openmrc.programs.main import app
from openmrc.wire import ip
from openmrc.wire.codes import Opcode
from openmrc.wire.message import compose
from openmrc.wire.pcapng import PcapngWriter

FAILING = "test 1/1 wire-order must responder\n    Not so.\n> WRITE_ONLY psn=0 a=1\n< SACK cack_psn=7\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["conform", *map(str, arguments)])


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    path = tmp_path / "failing.mrc"
    path.write_text(FAILING)
    return path


def test_junit_counts_failures_and_explains_them(tmp_path: Path, failing: Path) -> None:
    run("--virtual", "--script", failing, "--junit", tmp_path / "results.xml")
    suite = ElementTree.parse(tmp_path / "results.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "cack_psn is 0, expected 7"
    assert "< SACK cack_psn=7" in str(failure.text)


def test_the_page_has_a_row_a_clause_and_a_column_a_run(tmp_path: Path, failing: Path) -> None:
    saved = tmp_path / "earlier.json"
    saved.write_text(run("--virtual", "--json", "6.2.2/1").stdout)
    run("--virtual", "--script", failing, "--html", tmp_path / "page.html", "--with", saved)
    page = (tmp_path / "page.html").read_text()
    assert "<th>earlier<br><small>responder openmrc, in virtual time<br>1 pass</small></th><th>this run<br>" in page
    assert page.count("<code>wire-order</code>") == 1
    assert 'class="pass"' in page
    assert 'class="fail"' in page


def test_a_saved_run_that_is_none_is_refused(tmp_path: Path, failing: Path) -> None:
    failing.with_suffix(".json").write_text('{"tests": [{}]}')
    result = run("--virtual", "6.2.2/1", "--html", tmp_path / "x", "--with", failing.with_suffix(".json"))
    assert "not the output of mrc conform --json" in str(result.exception)


def captured(tmp_path: Path, test_id: str) -> Path:
    (test,) = chosen(shipped_tests(), [test_id])
    path = tmp_path / "test.pcapng"
    write_capture(run_virtually(test), path)
    return path


def verdicts(path: Path, *options: object) -> dict[str, str]:
    record = json.loads(run("--from-capture", path, "--json", *options).stdout)
    (connection,) = record["connections"]
    return {each["property"]: each["verdict"] for each in connection["properties"]}


def test_a_capture_alone_shows_what_its_packets_say(tmp_path: Path) -> None:
    found = verdicts(captured(tmp_path, "7.4.4/1"), "--mpr", 8)
    for name in ("icrc", "well-formed", "constants", "segmentation", "reth", "retransmissions", "other-path", "window"):
        assert found[name] == "pass", name
    assert found["probes-answered"] in ("inconclusive", "fail")  # the tester answers no probe


def test_a_capture_of_another_rule_broken_fails_it(tmp_path: Path) -> None:
    found = verdicts(captured(tmp_path, "table-7-10/1"))
    assert found["reserved-bits"] == "pass"
    path = captured(tmp_path, "6.2.2/7")  # the tester sends a packet with bytes too many
    assert verdicts(path)["well-formed"] == "fail"
    assert run("--from-capture", path).exit_code == 1


def test_a_capture_is_judged_by_the_port_and_dscps_of_its_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = DscpNumbers(data=30, control=31, trimmed=32)

    def deployed(side: int, planes: int) -> list[TapLink]:
        to_wire, from_wire = translations(numbers)
        made = [replace(each, here_port=6791, there_port=6791) for each in links(side, planes)]
        return [replace(each, to_wire=to_wire, from_wire=from_wire) for each in made]

    links = virtual.links
    monkeypatch.setattr(virtual, "links", deployed)
    monkeypatch.setattr(medium, "_links", lambda side: deployed(side, medium.MOST_PLANES))
    path = captured(tmp_path, "table-7-3/4")  # the tester sends a trimmed packet
    assert "no write of MRC" in str(run("--from-capture", path).exception)
    found = verdicts(path, "--port", 6791, "--dscps", "data=30,control=31,trimmed=32")
    assert found["icrc"] == found["well-formed"] == found["control-class"] == found["trims-answered"] == "pass"
    assert verdicts(path, "--port", 6791)["trims-answered"] == "inconclusive"  # no packet is known to be trimmed


@pytest.mark.parametrize("text", ["data", "dat=3", "data=64", "data=x"])
def test_dscps_that_are_none_are_refused(text: str) -> None:
    result = run("--from-capture", "x", "--dscps", text)
    assert result.exit_code == 2
    assert "data=4,control=46" in " ".join(result.output.split())


def test_rocev2_in_a_capture_is_not_judged_as_mrc(tmp_path: Path) -> None:
    path, (a, b) = tmp_path / "mixed.pcapng", map(ip_address, ("10.0.0.1", "10.0.0.2"))
    write = compose(Opcode.WRITE_ONLY, bytes(16), bth={"dqp": 0x33}, reth={"dmalen": 16}).emit()
    sealed = seal(write, 0xC000, TapLink(a, b))
    with path.open("wb") as file:
        writer = PcapngWriter(file, ["port"])
        for body in (b"\x11" + bytes(19), b"\x81" + bytes(31), sealed):  # acknowledgement of RC, CNP, MRC
            writer.write(0, 1, ip.datagram(a, b, 0xC000, 4791, body))
    assert verdicts(path)["well-formed"] == "pass"


def test_a_capture_without_mrc_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pcapng").write_bytes(b"nothing")
    assert "neither pcapng nor pcap" in str(run("--from-capture", tmp_path / "no.pcapng").exception)


@pytest.mark.parametrize(
    "words", [["--junit", "x.xml"], ["--html", "x"], ["--captures", "x"], ["--times"], ["6.3.1/1"]]
)
def test_what_a_capture_leaves_without_effect_is_refused(words: list[str], tmp_path: Path) -> None:
    result = run("--from-capture", captured(tmp_path, "6.3.1/1"), *words)
    assert "--from-capture runs no test; it takes no" in str(result.exception)


def test_the_record_of_a_capture_is_ok_only_if_nothing_failed(tmp_path: Path) -> None:
    for test_id, is_ok in (("7.4.4/1", True), ("6.2.2/7", False)):
        result = run("--from-capture", captured(tmp_path, test_id), "--json")
        assert (json.loads(result.stdout)["ok"], result.exit_code) == (is_ok, 0 if is_ok else 1), test_id
