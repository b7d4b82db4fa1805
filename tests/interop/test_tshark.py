"""What Wireshark reads in our captures, with its own dissectors and with our plugin."""

import subprocess
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

from openmrc.wire import ip
from openmrc.wire.codes import Opcode
from openmrc.wire.headers import AETH, BTH, CC_STATE, HEADERS, IMMDT, RETH, STACKS, WITH_PAYLOAD, Header, stack
from openmrc.wire.message import MrcPacket, compose
from openmrc.wire.pcapng import PcapngWriter
from openmrc.wire.wireshark import filter_name, plugin

from ..wire.packets import framed

pytestmark = pytest.mark.needs("tshark")

NOW = 1_700_000_000_123_456_789


def sample(opcode: Opcode) -> MrcPacket:
    """Return a packet with a different value in every field."""
    headers: dict[str, dict[str, int]] = {}
    for header in stack(opcode, True):
        free = [field for field in header.fields if field.sends is None and field.name not in ("opcode", "pad", "pr")]
        headers[header.name] = {
            field.name: 1 if field.width == 1 else (number + 2) * 0x0101010101010101 % (1 << min(field.width, 63) - 1)
            for number, field in enumerate(free)
        }
    return compose(opcode, b"hello" if opcode in WITH_PAYLOAD else b"", **headers)


SAMPLES = [sample(opcode) for opcode in STACKS]


def tshark(*arguments: object) -> str:
    done = subprocess.run(["tshark", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=True)
    assert "Lua Error" not in done.stdout + done.stderr
    return done.stdout


def rows(path: Path, names: Sequence[str], *arguments: object) -> list[list[str]]:
    fields = [part for name in names for part in ("-e", name)]
    text = tshark(*arguments, "-r", path, "-T", "fields", *fields)
    return [line.split("\t") for line in text.splitlines()]


def number(text: str) -> int:
    return int(text == "True") if text in ("True", "False") else int(text, 0)


@pytest.fixture(scope="module")
def with_plugin(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Options that load the plugin."""
    file = tmp_path_factory.mktemp("plugin") / "mrc.lua"
    file.write_text(plugin())
    return "-X", f"lua_script:{file}"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tshark") / "all.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file, ["plane0", "plane1"])
        for index, message in enumerate(SAMPLES):
            writer.write(index % 2, NOW + index, framed(message, label=0x1234), comment=f"packet {index}")
    return path


def test_wireshark_reads_interfaces_times_and_comments_of_our_captures(capture: Path) -> None:
    found = rows(capture, ["frame.interface_name", "frame.time_epoch", "frame.comment"])
    assert found[1] == ["plane1", "1700000000.123456790", "packet 1"]
    assert len(found) == len(SAMPLES)


def test_wireshark_alone_reads_bth_and_finds_the_udp_checksum_right(capture: Path) -> None:
    names = [filter_name(BTH, BTH.field(name)) for name in ("opcode", "se", "pad", "p_key", "dqp", "a", "psn")]
    found = rows(capture, [*names, "udp.checksum.status"], "-o", "udp.check_checksum:TRUE")
    for message, row in zip(SAMPLES, found, strict=True):
        bth = message.bth
        wanted = [bth.opcode, bth.se, bth.pad, bth.p_key, bth.dqp, bth.a, bth.psn, 1]
        assert [number(text) for text in row] == wanted


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_with_the_plugin_wireshark_reads_every_field_of_every_header(
    capture: Path, header: Header, with_plugin: tuple[str, str]
) -> None:
    found = rows(capture, [filter_name(header, field) for field in header.fields], *with_plugin)
    for message, row in zip(SAMPLES, found, strict=True):
        part = [part for part in message.parts if part.header is header]
        if not part:
            assert not any(row)
        elif header is IMMDT:
            assert int(row[0], 16) == part[0].immediate
        else:
            assert [number(text) for text in row] == [part[0].values[field.name] for field in header.fields]


def test_with_the_plugin_payload_icrc_and_ev_have_names(capture: Path, with_plugin: tuple[str, str]) -> None:
    found = rows(capture, ["mrc.payload", "infiniband.invariant.crc", "mrc.ev.value", "_ws.col.Protocol"], *with_plugin)
    for message, (payload, icrc, ev, protocol) in zip(SAMPLES, found, strict=True):
        assert payload == (message.payload.hex() or "")
        assert int(icrc, 16) == int.from_bytes(framed(message, label=0x1234)[-4:], "big")
        assert (int(ev, 16), protocol) == (0x1234C350, "MRC")


def test_filters_know_the_names(capture: Path, with_plugin: tuple[str, str]) -> None:
    wanted = "mrc.seth.cack_psn && infiniband.bth.opcode == 220"
    assert len(tshark(*with_plugin, "-r", capture, "-Y", wanted).splitlines()) == 1
    assert len(tshark(*with_plugin, "-r", capture, "-Y", "infiniband.reth.va").splitlines()) == len(WITH_PAYLOAD)
    assert filter_name(CC_STATE, CC_STATE.field("r_c")) == "mrc.cc.r_c"
    assert {filter_name(header, field).split(".")[0] for header in (RETH, AETH) for field in header.fields} == {
        "infiniband"
    }


def test_a_negative_offset_and_an_unsigned_probe_id_are_told_apart(
    tmp_path: Path, with_plugin: tuple[str, str]
) -> None:
    offsets = [{"ack_psn_offset": -2}, {"ack_psn_offset": 0xFFFE, "pr": 1}]
    path = tmp_path / "a.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file, ["plane0"])
        for seth in offsets:
            writer.write(0, NOW, framed(compose(Opcode.SACK, seth=seth)))
    assert rows(path, ["mrc.seth.ack_psn_offset"], *with_plugin) == [["-2"], ["65534"]]


def roce_write(to: int = 4791) -> bytes:
    """Return a RoCEv2 RC RDMA WRITE Only to address 9, which is none of MRC's."""
    body = bytes.fromhex("0a00ffff 00000012 00000007") + bytes.fromhex("0000000000000009 00000000 00000004") + bytes(8)
    return ip.datagram(ip_address("fd00::1"), ip_address("fd00::2"), 50_000, to, body)


def test_the_plugin_hands_other_roce_traffic_to_the_built_in_dissector(
    tmp_path: Path, with_plugin: tuple[str, str]
) -> None:
    path = tmp_path / "roce.pcapng"
    with path.open("wb") as file:
        PcapngWriter(file, ["plane0"]).write(0, NOW, roce_write())
    names = ["infiniband.bth.opcode", "infiniband.reth.va", "_ws.col.Info"]
    alone, together = rows(path, names), rows(path, names, *with_plugin)
    assert alone == together
    assert together[0][:2] == ["10", "0x0000000000000009"]
    assert rows(path, ["mrc"], *with_plugin) == [[""]]


def test_the_plugin_takes_the_other_port_and_survives_short_and_unknown_packets(
    tmp_path: Path, with_plugin: tuple[str, str]
) -> None:
    path = tmp_path / "odd.pcapng"
    whole = framed(SAMPLES[0], to=4971)
    unknown = bytearray(framed(SAMPLES[0]))
    unknown[48] = 0xDF
    with path.open("wb") as file:
        writer = PcapngWriter(file, ["plane0"])
        for data in (whole, bytes(unknown), whole[:76], whole[:61], whole[:50], roce_write(to=4971)):
            writer.write(0, NOW, data)
    found = rows(path, ["mrc.opcode", "mrc.trimmed", "mrc.meth.msn"], *with_plugin)
    assert [row[0] for row in found] == ["WRITE_FIRST", "UNKNOWN", "WRITE_FIRST", "WRITE_FIRST", "", ""]
    assert [bool(row[1]) for row in found] == [False, False, True, True, False, False]
    assert [bool(row[2]) for row in found] == [True, False, True, False, False, False]
