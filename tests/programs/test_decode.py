import json
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from openmrc.errors import ConfigError
from openmrc.programs.main import app
from openmrc.wire import ip, srv6
from openmrc.wire.codes import Opcode
from openmrc.wire.message import compose
from openmrc.wire.pcapng import PcapngWriter
from openmrc.wire.wireshark import plugin
from tests.wire.packets import framed

Capture = Callable[..., Path]  # frames -> a file that holds them

SACK = compose(Opcode.SACK, bth={"psn": 1}, seth={"cack_psn": 4, "sack_offset": 1, "sack_bitmap": 2**64 - 2})
WRITE = compose(Opcode.WRITE_ONLY, b"hello", bth={"psn": 2}, reth={"va": 2**63, "dmalen": 5})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["decode", *map(str, arguments)])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    def write(*frames: bytes) -> Path:
        path = tmp_path / "a.pcapng"
        with path.open("wb") as file:
            writer = PcapngWriter(file, ["plane0", "plane1"])
            for number, data in enumerate(frames):
                writer.write(number % 2, 1_000_000_000 + number, data)
        return path

    return write


@pytest.mark.parametrize("has_icrc", [True, False])
def test_hex_is_decoded_with_or_without_its_icrc(has_icrc: bool) -> None:
    digits = (SACK.emit() + (b"\1\2\3\4" if has_icrc else b"")).hex()
    (tree,) = lines(run("--hex", digits, "--json"))
    assert tree["seth"]["sack_bitmap"] == 2**64 - 2
    assert tree["icrc"] == (0x01020304 if has_icrc else None)
    assert tree["icrc_certain"] is True


def test_hex_may_be_grouped() -> None:
    grouped = ":".join(f"{byte:02x}" for byte in SACK.emit())
    assert run("--hex", grouped, "--json").stdout == run("--hex", "0x" + SACK.emit().hex(" "), "--json").stdout


def test_the_caller_may_know_better_than_the_length_does() -> None:
    data = compose(Opcode.WRITE_ONLY, bytes(8), reth={"dmalen": 8}).emit().hex()
    (with_icrc,), (without,) = lines(run("--hex", data, "--json", "--icrc")), lines(run("--hex", data, "--json"))
    assert (with_icrc["payload_length"], without["payload_length"]) == (4, 8)


def test_a_tree_for_people_names_headers_fields_and_codes() -> None:
    text = run("--hex", SACK.emit().hex()).stdout
    assert "seth" in text
    assert "220 (0xdc) SACK" in text


@pytest.mark.parametrize(("digits", "text"), [("0a", "truncated"), ("04" + "00" * 30, "not an MRC opcode")])
def test_a_packet_that_cannot_be_read_is_an_object_with_an_error(digits: str, text: str) -> None:
    result = run("--hex", digits, "--json")
    assert result.exit_code == 1
    assert text in lines(result)[0]["error"]


def test_what_is_no_hex_is_refused_by_name() -> None:
    result = run("--hex", "zz")
    assert isinstance(result.exception, ConfigError)
    assert "'zz'" in str(result.exception)


def test_a_capture_gives_one_object_per_packet(capture: Capture) -> None:
    path = capture(framed(SACK, label=0x12345, traffic_class=0xB9), framed(WRITE, "10.0.0.1", "10.0.0.2"))
    result = run(path, "--json")
    sack, write = lines(result)
    assert result.exit_code == 0
    assert (sack["frame"], sack["interface"], sack["time_ns"], sack["icrc_ok"]) == (1, "plane0", 10**9, True)
    assert (sack["ip"]["dscp"], sack["ip"]["ecn"], sack["ip"]["flow_label"]) == (46, 1, 0x12345)
    assert sack["ev"] == 0x2345C350
    assert write["reth"]["va"] == 2**63
    assert (write["udp"]["destination_port"], write["payload_length"], write["icrc_ok"]) == (4791, 5, True)
    assert "2 MRC packets read" in result.stderr


@pytest.mark.parametrize(("form", "ev"), [("udp", 50_000), ("stev", 50_000 << 16 | 0x2345), ("srv6", 50_000 - 0xC000)])
def test_the_ev_is_read_by_the_format_asked_for(capture: Capture, form: str, ev: int) -> None:
    (tree,) = lines(run(capture(framed(SACK, label=0x12345)), "--json", "--ev-format", form))
    assert tree["ev"] == ev


def test_the_outer_header_shows_the_path(capture: Capture) -> None:
    wrapped = srv6.encapsulate(framed(SACK), srv6.carrier([9]), [srv6.carrier([0x101, 0x201])])
    (tree,) = lines(run(capture(wrapped), "--json"))
    assert tree["srv6"]["usids"] == ["0101", "0201"]
    assert tree["icrc_ok"] is True


def test_bad_packets_become_errors_and_are_counted(capture: Capture) -> None:
    flipped = bytearray(framed(WRITE))
    flipped[-1] ^= 1
    result = run(capture(framed(SACK), bytes(flipped), framed(SACK)[:-30], b"\x45", framed(SACK, to=53)), "--json")
    good, flipped_tree, short, broken = lines(result)
    assert "error" not in good
    assert "bad ICRC" in flipped_tree["error"]
    assert flipped_tree["reth"]["dmalen"] == 5
    assert "truncated packet" in short["error"]
    assert "truncated IP header" in broken["error"]
    assert "1 MRC packets read, 1 refused: bad ICRC, 1 refused: truncated IP header, 1 refused: truncated packet" in (
        result.stderr
    )
    assert result.exit_code == 0


def test_traffic_of_others_to_the_port_is_counted_and_no_error(capture: Capture) -> None:
    a, b = ip_address("10.0.0.1"), ip_address("10.0.0.2")
    acknowledgement, cnp = (ip.datagram(a, b, 0xC000, 4791, bytes([opcode]) + bytes(19)) for opcode in (0x11, 0x81))
    result = run(capture(acknowledgement, cnp, framed(SACK)), "--json")
    assert [tree["bth"]["opcode"] for tree in lines(result)] == [0xDC]
    assert "1 MRC packets read; 2 datagrams of other protocols to the same port" in result.stderr


def test_a_file_that_ends_early_shows_what_came_before(capture: Capture) -> None:
    path = capture(framed(SACK), framed(SACK))
    path.write_bytes(path.read_bytes()[:-7])
    result = run(path, "--json")
    assert len(lines(result)) == 1
    assert "truncated block" in result.stderr
    assert result.exit_code == 0


def test_the_limit_and_the_port_are_the_callers(capture: Capture) -> None:
    path = capture(framed(SACK, to=9999), framed(SACK, to=9999), framed(SACK))
    assert len(lines(run(path, "--json", "--port", 9999, "--limit", 1))) == 1
    assert len(lines(run(path, "--json", "--port", 9999))) == 2


def test_nothing_to_read_is_a_failure(capture: Capture, tmp_path: Path) -> None:
    assert run(capture(), "--json").exit_code == 1
    other = tmp_path / "other"
    other.write_bytes(b"GIF89a")
    assert run(other, "--json").exit_code == 1
    assert isinstance(run(tmp_path / "missing").exception, ConfigError)
    assert isinstance(run().exception, ConfigError)


def test_the_plugin_is_written_where_asked(tmp_path: Path) -> None:
    assert run("--lua", tmp_path / "mrc.lua").exit_code == 0
    assert (tmp_path / "mrc.lua").read_text() == plugin()
