"""`mrc map feed`: name faulty parts from counters of NICs and switches that are not ours."""

import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from openmrc.errors import ConfigError, UsageError
from openmrc.operations.control.controller import ControllerEvent, FabricController
from openmrc.operations.fleets.feed import FeedFleet, FeedMapping, load_mapping, sample_of_json, samples_of_openmetrics
from openmrc.operations.fleets.state_folder import StateFolder
from openmrc.programs.fabrics.files import FabricFile, load_plan
from openmrc.programs.operations.map_watch import say
from openmrc.programs.outcome import stoppable

_TIMEOUT_S = 5.0  # of a scrape
_MOST_BYTES = 256 << 20  # of a page


def feed(
    file: FabricFile,
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="URLs of OpenMetrics, or one file of JSON lines; -: stdin.")
    ],
    mapping: Annotated[Path | None, typer.Option("--mapping", help="YAML: what their names mean.")] = None,
    every: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two readings.")] = 15.0,
    seconds: Annotated[float | None, typer.Option("--for", min=0, help="End after so many seconds.")] = None,
    folder: Annotated[Path | None, typer.Option("--ctl", help="Folder of notes and drains (default: none).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Name faulty parts from counters of other NICs and of switches; nothing is denied, nothing is probed."""
    plan, known = load_plan(file), FeedMapping() if mapping is None else load_mapping(mapping)
    fleet = FeedFleet(plan, known)
    are_urls = [each.startswith(("http://", "https://")) for each in inputs]
    if not all(are_urls) and len(inputs) > 1:
        raise UsageError("INPUT: several URLs, or one file of JSON lines")
    rounds = _scrapes(inputs, known, fleet, every, seconds) if are_urls[0] else _lines(inputs[0], known, fleet, every)
    with stoppable(), ExitStack() as stack:
        state = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(StateFolder(state).in_charge())
        controller = stack.enter_context(FabricController(plan, state, 0.0, fleet=fleet))
        told: set[str] = set()
        begun: float | None = None
        for at in rounds:
            begun = at if begun is None else begun
            for event in controller.step((at - begun) / every):  # an interval is a second of the controller's clock
                say(_slower(event, every), 0.0, as_json)
            for why in fleet.unknown.keys() - told:
                typer.echo(f"mrc: not used: {why}", err=True)
            told |= fleet.unknown.keys()


def _slower(event: ControllerEvent, every: float) -> ControllerEvent:
    """Return an event with its times in seconds."""
    verdict = event.verdict
    if verdict is not None:
        times = {"at_ps": round(verdict.at_ps * every), "window_ps": round(verdict.window_ps * every)}
        verdict = msgspec.structs.replace(verdict, **times)
    return msgspec.structs.replace(event, at=event.at * every, verdict=verdict)


def _scrapes(
    urls: list[str], mapping: FeedMapping, fleet: FeedFleet, every: float, seconds: float | None
) -> Iterator[float]:
    """Read all pages again and again; yield the time after each round."""
    begun = due = time.monotonic()
    while seconds is None or due - begun <= seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        for url in urls:
            try:
                with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                    text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
            except (OSError, HTTPException, ValueError) as error:
                typer.echo(f"mrc: {url}: {error}", err=True)
                continue
            if not fleet.take(samples_of_openmetrics(text, mapping)):
                typer.echo(f"mrc: {url}: nothing in it is of this fabric; see --mapping", err=True)
        yield due
        due += every


def _lines(name: str, mapping: FeedMapping, fleet: FeedFleet, every: float) -> Iterator[float]:
    """Read lines of JSON; yield the time of each interval when it is over. Lines without `at` come now."""
    with ExitStack() as stack:
        try:
            lines = sys.stdin if name == "-" else stack.enter_context(Path(name).open(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
        over: float | None = None
        at = 0.0
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            said, sample = sample_of_json(line, mapping, f"{name}:{number}")
            at = time.monotonic() if said is None else said
            over = at + every if over is None else over
            while at >= over:
                yield over - every
                over += every
            fleet.take([sample])
        if over is not None:
            yield over - every
