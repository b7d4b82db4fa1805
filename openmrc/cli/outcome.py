"""How a command ends: exit codes 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM; errors in one line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from openmrc.errors import MrcError, UsageError

if TYPE_CHECKING:
    from openmrc.apps.endpoint import EndpointOptions
    from openmrc.verbs import CaptureReport, Context

USAGE = 2
INTERRUPTED, TERMINATED = 130, 143  # 128 + signal, as shells tell it


class Terminated(BaseException):
    """SIGTERM came: end as on Ctrl-C, cleaning up."""


def _terminate(*_: Any) -> NoReturn:
    raise Terminated


def _say(how: str) -> None:
    typer.echo(f"mrc: {how}", err=True)


@contextmanager
def stoppable(last_word: Callable[[str], None] = _say) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the block orderly, with their exit codes; called from the main thread only.

    `last_word` is told "interrupted" or "terminated", and says so.
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        last_word("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except Terminated:
        last_word("terminated")
        raise typer.Exit(TERMINATED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def error_text(error: BaseException) -> str:
    """Return what to report: the text of our errors, a word for signals."""
    return (
        str(error) if isinstance(error, MrcError) else "terminated" if isinstance(error, Terminated) else "interrupted"
    )


class _Watched:
    """A stream that knows whether anything was written to it, or to the bytes under it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._below = _Watched(stream.buffer) if hasattr(stream, "buffer") else None
        self._is_used = False

    @property
    def is_used(self) -> bool:
        """Whether anything was written."""
        return self._is_used or (self._below is not None and self._below.is_used)

    def write(self, data: Any) -> Any:
        """Write, and note it."""
        written = self._stream.write(data)
        self._is_used = self._is_used or len(data) > 0
        return written

    def __getattr__(self, name: str) -> Any:
        return self._below if name == "buffer" and self._below is not None else getattr(self._stream, name)


@contextmanager
def json_errors(arguments: Sequence[str]) -> Iterator[None]:
    """If the arguments ask for JSON and the command fails without having printed any, print {"error": ...}."""
    words = list(arguments)
    words = words[: words.index("--")] if "--" in words else words
    if not {"--json", "--out_json"} & set(words):
        yield
        return
    before, watched = sys.stdout, _Watched(sys.stdout)
    sys.stdout = watched
    try:
        yield
    except BaseException as error:
        text = _failure(error)
        if text is not None and not watched.is_used:
            print_json({"ok": False, "error": text})
        raise
    finally:
        sys.stdout = before


def _failure(error: BaseException) -> str | None:
    """Return what a command failed of; None if it did not fail."""
    if isinstance(error, typer.Exit):
        signals = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}
        return signals.get(error.exit_code, f"exit code {error.exit_code}") if error.exit_code else None
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    message = getattr(error, "format_message", None)  # wrong options, found by the parser
    return str(message() if message is not None else error) or type(error).__name__


def print_json(result: Any) -> None:
    """Print one object on one line of stdout."""
    import msgspec

    typer.echo(msgspec.json.encode(result).decode())


class JsonErrors(TyperGroup):
    """Commands that, asked for --json, answer a failure with an object that has `error`, and exit as they would."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        words = list(ctx.args)
        asked = "--json" in words[: words.index("--") if "--" in words else None] or ctx.params.get("as_json")
        try:
            return super().invoke(ctx)
        except MrcError as error:
            if asked:
                print_json({"error": str(error)})
            raise


@contextmanager
def opened(options: EndpointOptions) -> Iterator[Context]:
    """Open an endpoint for the block; afterwards report on stderr what became of its capture file."""
    from openmrc.apps.endpoint import open_endpoint

    with open_endpoint(options) as context:
        try:
            yield context
        finally:
            context.close()
            report = context.capture_report()
            if report is not None:
                typer.echo(f"mrc: {_capture_text(report)}", err=True)


def _capture_text(report: CaptureReport) -> str:
    if report.is_complete:
        return f"{report.path}: all {report.packets} packets"
    why = f": {report.error}" if report.error else ": the file was too slow"
    return f"{report.path}: {report.packets} packets, {report.lost} are missing{why}"


def planes_of(
    planes: str | None, remote: str | None, host: str | None, device: str | None = None, index: int = 0
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the local addresses that the options mean, and the remote ones that replace what the peer tells."""
    from openmrc.apps.planes import Side, interface_planes, local_planes

    if planes is not None and device is not None:
        raise UsageError("--planes and --ib-dev: give one of them")
    side = Side.SERVER if host is None else Side.CLIENT
    ours = interface_planes(device, index) if device is not None else local_planes(planes, side, host)
    theirs = tuple(part.strip() for part in remote.split(",")) if remote else ()
    if theirs and ours and len(theirs) != len(ours):
        raise UsageError(f"--remote: {len(theirs)} addresses, but {len(ours)} planes")
    return tuple(ours), theirs
