"""The options of `mrc decode`, in groups."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from openmrc.errors import UsageError

PLACEMENTS = ("udp", "ecmp", "stev", "stev-label-first", "srv6")


@dataclass(frozen=True)
class DecodeSource:
    """What is decoded: a capture, or the digits of one packet."""

    capture: Annotated[Path | None, typer.Argument(metavar="FILE", help="A pcapng or pcap file.")] = None
    hex_digits: Annotated[
        str | None, typer.Option("--hex", metavar="HEX", help="One UDP payload from BTH on, with or without ICRC.")
    ] = None
    trimmed: Annotated[bool, typer.Option("--trimmed", help="With --hex: the packet was trimmed.")] = False
    icrc: Annotated[
        bool | None,
        typer.Option("--icrc/--no-icrc", help="With --hex: the packet ends with the ICRC or not (default: by length)."),
    ] = None


@dataclass(frozen=True)
class PacketRecognition:
    """Which packets of a capture are MRC's, and how they are read."""

    port: Annotated[list[int] | None, typer.Option(help="UDP destination port of MRC (default: 4791 and 4971).")] = None
    ev_format: Annotated[str, typer.Option(help=f"Placement of the EV: {', '.join(PLACEMENTS)}.")] = "ecmp"
    trimmed_dscp: Annotated[
        list[int] | None, typer.Option(help="DSCP of trimmed packets (default: 12 and 16).", min=0, max=63)
    ] = None


@dataclass(frozen=True)
class ShownPackets:
    """Which packets are printed, and in which form."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print a tree of all fields of each packet.")] = False
    qpn: Annotated[
        list[str] | None, typer.Option(metavar="QPN", help="Only packets to this QPN, such as 0x1234; may be repeated.")
    ] = None
    opcode: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only packets of this opcode, such as SACK; may be repeated."),
    ] = None
    limit: Annotated[int | None, typer.Option(help="Stop after this many packets.", min=1)] = None

    @property
    def form(self) -> str:
        """How a packet is printed: json, tree or line."""
        return "json" if self.as_json else "tree" if self.verbose else "line"


@dataclass(frozen=True)
class PluginToWrite:
    """The plugin for Wireshark, which is written instead."""

    lua: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write the Wireshark plugin to this file and exit.")
    ] = None
    fabric: Annotated[
        Path | None,
        typer.Option(metavar="FABRIC", help="With --lua: show carriers as switches and ports of this fabric."),
    ] = None

    def check(self, source: DecodeSource) -> None:
        """UsageError unless there is one thing to do."""
        if [source.capture, source.hex_digits, self.lua].count(None) != 2:
            raise UsageError("decode: give exactly one of FILE, --hex HEX and --lua PATH")
        if self.fabric is not None and self.lua is None:
            raise UsageError("decode: --fabric requires --lua PATH")
