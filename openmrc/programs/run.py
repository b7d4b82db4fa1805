"""`mrc run`: run an RDMA program of others on MRC; `mrc native`: the library that does it."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from openmrc.base.faults import Schedule, not_empty
from openmrc.errors import UsageError
from openmrc.native.library import include_folder, library
from openmrc.native.library import install as install_library
from openmrc.native.program import check_planes, check_program, environment
from openmrc.programs.outcome import Json, give, print_json
from openmrc.version import __version__

STATUSES = (  # as in native/src/objects/forced_errors.c
    *("retry", "access", "operation", "fatal", "local", "rnr", "flush"),
    *("access-event", "fatal-event", "port-down", "port-up", "gid-change"),
)
OPERATIONS = ("write", "send", "read", "recv")
EMULATED = {"send", "read", "rnr"}
_QUEUE_PAIR = re.compile(r"qp[1-9]\d*")
LOOPBACK = tuple(f"127.0.0.{plane}" for plane in range(1, 5))


Program = Annotated[list[str], typer.Argument(metavar="PROGRAM ARGS...", help="The program, and its arguments.")]
Planes = Annotated[
    str, typer.Option("--planes", help="Local IPv4 address of each plane, separated by commas; loopback: 4 of it.")
]
Faults = Annotated[
    str, typer.Option("--faults", help="What happens to arriving packets: a file, or 'at: 2s, down: plane 1; ...'")
]
Emulated = Annotated[
    str,
    typer.Option(
        "--emulate", help="Operations that MRC lacks, built from writes: send, read, rnr. Both ends must agree."
    ),
]
FailAfter = Annotated[
    str,
    typer.Option(
        "--fail-after",
        help="N or N:STATUS: the Nth completion of each queue pair fails with retry, access, operation, fatal, local, "
        "rnr or flush, or brings access-event, fatal-event, port-down, port-up or gid-change. With :write, :send, "
        ":read or :recv only completions of that operation count, with :qpK only those of the Kth queue pair.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not say which planes were chosen.")]


def run(
    program: Program,
    planes: Planes = "",
    faults: Faults = "",
    emulate: Emulated = "",
    fail_after: FailAfter = "",
    quiet: Quiet = False,
) -> None:
    """Run a program that uses InfiniBand verbs; it finds the device mrc0.

    Both ends must run like this. The program is not changed: the library is preloaded, and hands on what is not its
    own. Without --planes the interfaces of this machine are planes, or one loopback address if there are none.
    """
    if not set(filter(None, emulate.split(","))) <= EMULATED:
        raise UsageError(f"--emulate: {emulate!r} is not offered; send, read and rnr are")
    check_program(program[0])
    given = LOOPBACK if planes == "loopback" else tuple(filter(None, planes.split(",")))
    settings = environment(os.environ, library(_say), given, _schedule(faults), emulate)
    check_planes(settings, "--planes" if given else "MRC_PLANES")
    if fail_after:
        settings["MRC_FAIL_AFTER"] = _forced(fail_after)
    if quiet:
        settings["MRC_LOG"] = "off"
    sys.stdout.flush()
    try:
        os.execvpe(program[0], program, settings)
    except OSError as error:
        raise UsageError(f"{program[0]}: {error.strerror}") from error


settings: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}
run.context_settings = settings  # type: ignore[attr-defined]


def _schedule(faults: str) -> Schedule | None:
    if not faults:
        return None
    return not_empty(Schedule.read(faults) if os.path.isfile(faults) else Schedule.parse(faults, "--faults"), faults)


def _forced(fail_after: str) -> str:
    """Check which completion is to fail, and how."""
    count, *words = fail_after.split(":")
    known = {*STATUSES, *OPERATIONS}
    if not (
        count.isdecimal() and int(count) > 0 and all(word in known or _QUEUE_PAIR.fullmatch(word) for word in words)
    ):
        raise UsageError(
            f"--fail-after: {fail_after!r}: expected N or N:WORD:..., with {', '.join(sorted(known))} or qpK"
        )
    return fail_after


def _say(line: str) -> None:
    typer.echo(line, err=True)


def native(
    path: Annotated[bool, typer.Option("--path", help="Print the path of the library alone.")] = False,
    include: Annotated[bool, typer.Option("--include", help="Print the folder of the headers alone.")] = False,
    install: Annotated[
        str, typer.Option("--install", metavar="PREFIX", help="Install library, headers, libmrc.pc, manual page there.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show the native library; build it if it is not there (cc, libibverbs-dev).

    The library holds the engine and a verbs device, and needs no Python: programs link it, open it by path, or run with
    it preloaded, as `mrc run` does.
    """
    if install:
        made = install_library(Path(install).absolute(), _say)
        give({"ok": True, "installed": [str(file) for file in made]}, as_json, "\n".join(map(str, made)))
        return
    found, headers = library(_say), include_folder()
    if as_json:
        print_json({"ok": True, "library": str(found), "include": str(headers), "version": __version__})
    elif path or include:
        typer.echo(found if path else headers)
    else:
        typer.echo(f"library  {found}\nheaders  {headers}\nversion  {__version__}")
        typer.echo(f"compile  cc program.c -I{headers} {found} -Wl,-rpath,{found.parent}")
        typer.echo("run      mrc run --planes loopback PROGRAM ARGS...")
