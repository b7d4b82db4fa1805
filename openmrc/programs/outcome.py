"""Exit codes and errors: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM; one line per error."""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from openmrc.errors import MrcError, UsageError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
USAGE = 2
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
INTERRUPTED, TERMINATED = 130, 143  # 128 + signal, as in shells
_is_given = False  # whether this command has printed JSON, or was not asked to


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


def reason(error: BaseException) -> str | None:
    """Return what to report of an error of this package, of memory, of files or of a signal; None of any other."""
    match error:
        case MrcError():
            return str(error)
        case Terminated():
            return "terminated"
        case KeyboardInterrupt():
            return "interrupted"
        case MemoryError():
            why = f"{error}; " if str(error) else ""
            return f"out of memory: {why}a smaller fabric or workload, or fewer EVs, takes less"
        case OSError() if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        case OSError() if error.errno in _WRITING:  # a write does not know the name of its file
            return f"results could not be written: {error.strerror}"
    return None


def print_json(result: Any) -> None:
    """Print one object on one line of stdout."""
    import msgspec

    global _is_given
    typer.echo(msgspec.json.encode(result).decode())
    _is_given = True


def give(result: Any, as_json: bool, text: str | Callable[[], object]) -> None:
    """Print a result as JSON, or for people its text; a function prints it."""
    if as_json:
        print_json(result)
    elif isinstance(text, str):
        typer.echo(text)
    else:
        text()


@contextmanager
def json_errors(arguments: Sequence[str]) -> Iterator[None]:
    """If the arguments ask for JSON and the command fails before it prints any, print {"ok": false, "error": ...}.

    Ctrl-C that no command heard, as while a run is planned, is one line.
    """
    global _is_given
    words = list(arguments)
    words = words[: words.index("--")] if "--" in words else words
    _is_given = not {"--json", "--out_json"} & set(words)
    try:
        yield
    except BaseException as error:
        text = failure(error)
        if text is not None and not _is_given:
            print_json({"ok": False, "error": text})
        if isinstance(error, KeyboardInterrupt):
            _print_interruption("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        raise


def failure(error: BaseException) -> str | None:
    """Return the reason of a failure; None if the command did not fail."""
    if isinstance(error, typer.Exit):
        signals = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}
        return signals.get(error.exit_code, f"exit code {error.exit_code}") if error.exit_code else None
    if (known := reason(error)) is not None:
        return known
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
