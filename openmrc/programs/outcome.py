"""Exit codes and errors: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM; one line per error."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from openmrc.errors import MrcError, UsageError

if TYPE_CHECKING:
    from openmrc.programs.endpoint.opening import EndpointOptions
    from openmrc.verbs import CaptureReport, Context

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
USAGE = 2
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
INTERRUPTED, TERMINATED = 130, 143  # 128 + signal, as in shells


class Terminated(BaseException):
    """SIGTERM arrived: clean up and exit as on Ctrl-C."""


def _terminate(*_: Any) -> NoReturn:
    raise Terminated


def _print_interruption(how: str) -> None:
    typer.echo(f"mrc: {how}", err=True)


@contextmanager
def stoppable(on_stop: Callable[[str], None] = _print_interruption) -> Iterator[None]:
    """Exit cleanly on Ctrl-C and SIGTERM, with their exit codes. Call from the main thread only.

    `on_stop` is called with "interrupted" or "terminated".
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        on_stop("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except Terminated:
        on_stop("terminated")
        raise typer.Exit(TERMINATED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def error_text(error: BaseException) -> str:
    """Return the text to report: the message of our errors, the name of a signal."""
    return (
        str(error) if isinstance(error, MrcError) else "terminated" if isinstance(error, Terminated) else "interrupted"
    )


def file_error(error: OSError) -> str | None:
    """Return the text to report of an error about a file that the user named, or about writing; None for others."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno in _WRITING:  # a write does not know the name of its file
        return f"results could not be written: {error.strerror}"
    return None


class _Watched:
    """A stream that records whether anything was written to it or to its byte buffer."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._below = _Watched(stream.buffer) if hasattr(stream, "buffer") else None
        self._is_used = False

    @property
    def is_used(self) -> bool:
        """Whether anything was written."""
        return self._is_used or (self._below is not None and self._below.is_used)

    def write(self, data: Any) -> Any:
        """Write, and record it."""
        written = self._stream.write(data)
        self._is_used = self._is_used or len(data) > 0
        return written

    def __getattr__(self, name: str) -> Any:
        return self._below if name == "buffer" and self._below is not None else getattr(self._stream, name)


@contextmanager
def json_errors(arguments: Sequence[str]) -> Iterator[None]:
    """If the arguments ask for JSON and the command fails before it prints any, print {"ok": false, "error": ...}."""
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
    """Return the reason of a failure; None if the command did not fail."""
    if isinstance(error, typer.Exit):
        signals = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}
        return signals.get(error.exit_code, f"exit code {error.exit_code}") if error.exit_code else None
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    about = file_error(error) if isinstance(error, OSError) else None
    if about is not None:
        return about
    message = getattr(error, "format_message", None)  # wrong options, found by the parser
    return str(message() if message is not None else error) or type(error).__name__


def check_folder(path: Path | None, option: str) -> None:
    """Refuse a folder that could not be made after the work is done."""
    if path is not None and path.exists() and not path.is_dir():
        raise UsageError(f"{option}: {path} is a file; expected a folder")


def check_file(path: Path | None, option: str) -> None:
    """Refuse a file that could not be written after the work is done."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{option}: {path} is a folder; expected a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{option}: {path}: permission denied")


def print_json(result: Any) -> None:
    """Print one object on one line of stdout."""
    import msgspec

    typer.echo(msgspec.json.encode(result).decode())


@contextmanager
def opened(options: EndpointOptions) -> Iterator[Context]:
    """Open an endpoint for the block; afterwards report the result of its capture on stderr."""
    from openmrc.programs.endpoint.opening import open_endpoint

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
    why = f": {report.error}" if report.error else ": writing was too slow"
    return f"{report.path}: {report.packets} packets, {report.lost} are missing{why}"


def planes_of(
    planes: str | None, remote: str | None, host: str | None, device: str | None = None, index: int = 0
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the local addresses that the options select, and the remote ones that override the peer's."""
    from openmrc.live.host.planes import EndpointSide, interface_planes, local_planes

    if planes is not None and device is not None:
        raise UsageError("--planes and --ib-dev exclude each other; give one")
    side = EndpointSide.SERVER if host is None else EndpointSide.CLIENT
    ours = interface_planes(device, index) if device is not None else local_planes(planes, side, host)
    theirs = tuple(part.strip() for part in remote.split(",")) if remote else ()
    if theirs and ours and len(theirs) != len(ours):
        raise UsageError(f"--remote: {len(theirs)} addresses, but {len(ours)} planes")
    return tuple(ours), theirs
