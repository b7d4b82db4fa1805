"""`mrc decode`: print the MRC packets of a capture, one a line, as trees or as JSON."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from openmrc.errors import ConfigError, UsageError, WireError
from openmrc.fabric.addressing.carriers import carrier_planes
from openmrc.programs.fabrics.files import load_plan
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import print_json
from openmrc.programs.packets.decode_options import (
    PLACEMENTS,
    DecodeSource,
    PacketRecognition,
    PluginToWrite,
    ShownPackets,
)
from openmrc.programs.packets.lines import CaptureSummary, heading, packet_line, plane_width
from openmrc.wire.capture import (
    DEFAULT_TRIMMED_DSCP,
    Datagram,
    Dissected,
    dissect,
    find_datagram,
    is_of_mrc,
)
from openmrc.wire.codes import UDP_PORTS_ACCEPTED, NackReason, Opcode, Syndrome, WireStatus
from openmrc.wire.entropy import EvPlacement, entropy
from openmrc.wire.layout import ICRC_LENGTH
from openmrc.wire.message import IcrcPresence, WireCounters, icrc_presence, parse, problem
from openmrc.wire.pcapng import PcapFrame, read_frames
from openmrc.wire.srv6 import Encapsulation, usids
from openmrc.wire.wireshark import plugin

MOST_NAMED = 16  # QPNs in a sentence


@with_groups
def decode(source: DecodeSource, recognition: PacketRecognition, shown: ShownPackets, plugin: PluginToWrite) -> None:
    """Decode MRC packets from a capture file, one a line, or from hexadecimal digits.

    An invalid packet is shown with its error; stderr shows the number of decoded and invalid packets.
    The exit code is 1 if no packet could be decoded, or none was chosen.
    """
    plugin.check(source)
    if recognition.ev_format not in PLACEMENTS:
        raise UsageError(f"--ev-format: {recognition.ev_format!r} is not one of {', '.join(PLACEMENTS)}")
    if plugin.lua is not None:
        _write_plugin(plugin.lua, plugin.fabric)
    elif source.hex_digits is not None:
        _decode_hex(source.hex_digits, shown.as_json, source.trimmed, source.icrc)
    elif source.capture is not None:
        _decode_file(source.capture, recognition, _choice(shown.qpn, shown.opcode), shown.limit, shown.form)


def _write_plugin(path: Path, fabric: Path | None) -> None:
    path.write_text(plugin(carrier_planes(load_plan(fabric)) if fabric else ()))
    typer.echo(f"wrote {path}; copy it to Wireshark's personal Lua plugin folder", err=True)


def _decode_hex(digits: str, as_json: bool, trimmed: bool, icrc: bool | None) -> None:
    data = _bytes_of(digits)
    try:
        presence = icrc_presence(data) if icrc is None and not trimmed else IcrcPresence(bool(icrc), True)
        message = parse(data, has_icrc=presence.present, trimmed=trimmed)
    except WireError as error:
        _print({"error": str(error)}, as_json, "packet")
        raise typer.Exit(1) from None
    _print(message.as_json() | {"icrc_certain": presence.certain}, as_json, message.opcode.name)


def _bytes_of(digits: str) -> bytes:
    cleaned = "".join(digits.split()).replace(":", "").removeprefix("0x").removeprefix("0X")
    try:
        return bytes.fromhex(cleaned)
    except ValueError:
        allowed = "expected pairs of hexadecimal digits, spaces and colons"
        raise UsageError(f"--hex: {digits[:40]!r} is not a packet: {allowed}") from None


@dataclass(frozen=True)
class PacketChoice:
    """Which packets were asked for; what cannot be read is shown only if everything is."""

    qpns: set[int]  # empty: all
    opcodes: set[int]  # empty: all
    passed_over: set[int] = field(default_factory=set)  # QPNs of packets that were not asked for

    def takes(self, entry: dict[str, Any]) -> bool:
        bth = entry.get("bth", {})
        is_wanted = bth.get("dqp", -1) in self.qpns or not self.qpns
        is_wanted &= bth.get("opcode", -1) in self.opcodes or not self.opcodes
        if bth and not is_wanted:
            self.passed_over.add(bth["dqp"])
        return is_wanted

    def nothing(self) -> str:
        """Return what to say if no packet was taken, though there are some."""
        some = [f"{each:#x}" for each in sorted(self.passed_over)]
        return f"no such packet; there are packets to the QPNs {', '.join(some[:MOST_NAMED])}"


def _choice(qpns: list[str] | None, opcodes: list[str] | None) -> PacketChoice:
    try:
        numbers = {int(text, 0) for text in qpns or ()}
    except ValueError:
        raise UsageError(f"--qpn: {', '.join(qpns or ())} is not a number") from None
    names = {text.upper() for text in opcodes or ()}
    unknown = names - set(Opcode.__members__)
    if unknown:
        raise UsageError(f"--opcode: {', '.join(sorted(unknown))} is not one of {', '.join(Opcode.__members__)}")
    return PacketChoice(numbers, {int(Opcode[name]) for name in names})


def _decode_file(
    path: Path, recognition: PacketRecognition, choice: PacketChoice, limit: int | None, form: str
) -> None:
    counters, summary, shown, readable = WireCounters(), CaptureSummary(), 0, 0
    begun, width = 0, 0
    try:
        for entry in filter(choice.takes, _entries(path, recognition, counters)):
            if not shown:
                begun, width = entry["time_ns"], plane_width(entry)
            if form == "line":
                line = packet_line(entry, begun, width)
                typer.echo(line if shown else f"{heading(width)}\n{line}")
            else:
                title = f"frame {entry['frame']}  {entry['interface']}  {_seconds(entry['time_ns'])}"
                _print(entry, form == "json", title)
            summary.add(entry)
            shown += 1
            readable += "bth" in entry
            if shown == limit:
                break
    except WireError as error:  # the file itself is damaged
        if not shown:
            raise ConfigError(f"{path}: {error}") from None
        counters.count(error)
        typer.echo(f"mrc: {path}: {error}", err=True)
    if form == "line":
        for line in summary.lines():
            typer.echo(line, err=True)
    _summarise(counters)
    if not shown and choice.passed_over:
        typer.echo(f"mrc: {path}: {choice.nothing()}", err=True)
    if not readable:
        raise typer.Exit(1)


def _seconds(time_ns: int) -> str:
    return f"{time_ns // 10**9}.{time_ns % 10**9:09d}"


def _entries(path: Path, recognition: PacketRecognition, counters: WireCounters) -> Iterator[dict[str, Any]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    with file:
        for frame in read_frames(file):
            about = {"frame": frame.number, "time_ns": frame.time_ns, "interface": frame.interface}
            try:
                datagram = find_datagram(frame)
                if datagram is None or datagram.udp.destination_port not in (recognition.port or UDP_PORTS_ACCEPTED):
                    continue
                if not is_of_mrc(datagram):
                    counters.others += 1
                    continue
                about |= _addresses(datagram, recognition.ev_format)
                dissected = dissect(frame, datagram, recognition.trimmed_dscp or DEFAULT_TRIMMED_DSCP)
            except WireError as failure:
                counters.count(failure)
                yield about | {"error": str(failure)}
                continue
            bad_icrc = problem(WireStatus.BAD_ICRC, len(frame.data) - ICRC_LENGTH)
            found = None if dissected.icrc_ok is not False else bad_icrc
            counters.count(found)
            yield about | _packet(frame, dissected) | ({"error": str(found)} if found else {})


def _vxlan(tunnel: Encapsulation) -> dict[str, Any]:
    return {
        "vxlan": {"source": str(tunnel.outer.source), "destination": str(tunnel.outer.destination), "vni": tunnel.vni}
    }


def _srv6(found: Encapsulation) -> dict[str, Any]:
    destination = found.outer.destination
    path: dict[str, Any] = {
        "source": str(found.outer.source),
        "destination": str(destination),
        "usids": [f"{usid:04x}" for usid in usids(destination)] if destination.version == 6 else [],
        "flow_label": found.outer.flow_label,
    }
    if found.srh:
        path["segments_left"] = found.srh.segments_left
        path["segments"] = [str(segment) for segment in found.srh.segments]
    return {"srv6": path}


def _addresses(datagram: Datagram, ev_format: str) -> dict[str, Any]:
    ip, udp = datagram.ip, datagram.udp
    found: dict[str, Any] = {}
    for each in reversed(datagram.outer):  # of several of a kind the outermost is shown
        found |= _vxlan(each) if each.vni is not None else _srv6(each)
    found["ip"] = {
        "version": ip.version,
        "source": str(ip.source),
        "destination": str(ip.destination),
        "dscp": ip.dscp,
        "ecn": ip.ecn,
        "flow_label": ip.flow_label,
        "hop_limit": ip.hop_limit,
    }
    found["udp"] = {"source_port": udp.source_port, "destination_port": udp.destination_port, "length": udp.length}
    placement = EvPlacement[ev_format.upper().replace("-", "_")]
    return found | {"ev": entropy(placement, udp.source_port, ip.flow_label)}


def _packet(frame: PcapFrame, dissected: Dissected) -> dict[str, Any]:
    found = dissected.message.as_json() | {"payload_length": dissected.payload_length, "icrc_ok": dissected.icrc_ok}
    if len(frame.data) < frame.original_length:
        found["captured"] = len(frame.data)
    return found


def _summarise(counters: WireCounters) -> None:
    refused = "".join(f", {count} refused: {reason}" for reason, count in sorted(counters.refused.items()))
    others = f"; {counters.others} datagrams of other protocols to the same port" if counters.others else ""
    typer.echo(f"{counters.accepted} MRC packets read{refused}{others}", err=True)


def _print(entry: dict[str, Any], as_json: bool, title: str) -> None:
    if as_json:
        print_json(entry)
        return

    tree = Tree(Text(title, style="bold"))
    for key, value in entry.items():
        if isinstance(value, dict):
            branch = tree.add(Text(key, style="cyan"))
            for name, item in value.items():
                branch.add(Text(f"{name:<16} {_shown(name, item)}"))
        elif key not in ("frame", "time_ns", "interface"):
            tree.add(Text(f"{key}: {_shown(key, value)}", style="red" if key == "error" else ""))
    Console(highlight=False, markup=False, soft_wrap=True).print(tree)


_IN_HEX = ("opcode", "p_key", "dqp", "va", "r_key", "entropy", "ev", "icrc", "sack_bitmap", "syndrome", "immediate")


def _shown(name: str, value: Any) -> str:
    """Return a value for display: large bit patterns also in hexadecimal, codes with their names."""
    names: dict[str, Any] = {"opcode": Opcode, "nack_reason": NackReason, "syndrome": Syndrome}
    if isinstance(value, list):
        return " ".join(str(item) for item in value) or "-"
    if value is None:
        return "-"
    if not isinstance(value, int) or isinstance(value, bool):
        return str(value)
    text = f"{value} (0x{value:x})" if name in _IN_HEX else str(value)
    known = name in names and value in names[name].__members__.values()
    return f"{text} {names[name](value).name}" if known else text
