"""The options of `mrc conform`, in groups."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from openmrc.conform.datagrams import USUAL_DSCPS, DscpNumbers
from openmrc.errors import UsageError
from openmrc.programs.outcome import Json, check_file, check_folder


@dataclass(frozen=True)
class ChosenTests:
    tests: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEST", help="Ids, sections, clauses, parts or levels; * and ? are wild (default: all)."
        ),
    ] = None
    script: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Tests of this file instead of those that ship.")
    ] = None
    as_list: Annotated[bool, typer.Option("--list", help="List the tests and their clauses, run none.")] = False


@dataclass(frozen=True)
class UnderTest:
    """What is tested, and how it is reached."""

    device: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Adapter of the device under test: endpoint (default), libmrc, rocev2, by-hand, or a command.",
        ),
    ] = None
    peer: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Adapter of the responder in tests of two devices, likewise.")
    ] = None
    local: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Address of the tester, one a plane (default: loopback of its own)."),
    ] = None
    bridge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEFT,RIGHT",
            help="Bridge two interfaces, one pair a plane, instead of sockets (root): tests of two devices only.",
        ),
    ] = None
    slack: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait so much longer, for a device that a person operates.", min=0)
    ] = 0.0
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Test our engine in virtual time: no sockets, the same every time.")
    ] = False

    def check(self) -> None:
        """UsageError for options that exclude each other."""
        if self.virtual and (self.device or self.peer or self.local or self.bridge):
            raise UsageError("conform: --virtual tests our engine; it takes no --device, --peer, --local or --bridge")
        if self.bridge and self.local:
            raise UsageError("conform: a bridge has no addresses: --bridge or --local, not both")


@dataclass(frozen=True)
class ConformOutput:
    """What is written and printed."""

    captures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a pcapng file of each test that failed or differs.")
    ] = None
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page: a row a clause, a column a run.")] = (
        None
    )
    earlier: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="FILE", help="With --html: a column for this earlier run, saved from --json."),
    ] = None
    as_json: Json = False
    show_reactions: Annotated[bool, typer.Option("--times", help="Print reaction times of the device.")] = False

    def check(self) -> None:
        """UsageError for results that could not be written after the run."""
        check_file(self.junit, "--junit")
        check_file(self.html, "--html")
        check_folder(self.captures, "--captures")
        if self.earlier and self.html is None:
            raise UsageError("conform: --with adds columns to the page of --html")


def _dscps(text: str | DscpNumbers) -> DscpNumbers:
    """Return DSCPs by the names that adapters use."""
    if isinstance(text, DscpNumbers):
        return text
    try:
        return msgspec.convert(dict(each.split("=") for each in text.split(",")), DscpNumbers, strict=False)
    except ValueError as error:
        names = ", ".join(DscpNumbers.__struct_fields__)
        raise typer.BadParameter(f"{text!r} is not such as data=4,control=46 with names of {names}: {error}") from None


@dataclass(frozen=True)
class CaptureToJudge:
    """A capture that is judged instead of a device."""

    from_capture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Judge a capture file by what it alone can show, run no test.")
    ] = None
    mpr: Annotated[
        int | None, typer.Option(help="With --from-capture: window of the responder, in 128 PSNs.", min=1, max=255)
    ] = None
    port: Annotated[
        list[int] | None,
        typer.Option(help="With --from-capture: UDP port of MRC; may be repeated (default: 4791, 4971)."),
    ] = None
    dscps: Annotated[
        DscpNumbers,
        typer.Option(
            metavar="CLASS=NUMBER,...",
            parser=_dscps,
            help="With --from-capture: DSCPs of the deployment that differ from "
            + ", ".join(f"{name}={number}" for name, number in msgspec.structs.asdict(USUAL_DSCPS).items())
            + ".",
            show_default=False,
        ),
    ] = USUAL_DSCPS

    def check(self, what: ChosenTests, subject: UnderTest, output: ConformOutput) -> None:
        """UsageError for options that a capture leaves without effect."""
        if self.from_capture is None:
            if self.mpr is not None or self.port or self.dscps != USUAL_DSCPS:
                raise UsageError("conform: --mpr, --port and --dscps go with --from-capture")
            return
        given = {
            "TEST": what.tests, "--script": what.script, "--list": what.as_list,
            "--device": subject.device, "--peer": subject.peer, "--local": subject.local, "--bridge": subject.bridge,
            "--slack": subject.slack, "--virtual": subject.virtual, "--captures": output.captures,
            "--junit": output.junit, "--html": output.html, "--with": output.earlier, "--times": output.show_reactions,
        }  # fmt: skip
        if idle := [name for name, value in given.items() if value]:
            raise UsageError(f"conform: --from-capture runs no test; it takes no {', '.join(idle)}")
