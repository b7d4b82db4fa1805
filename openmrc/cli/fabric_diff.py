"""`mrc fabric diff`: hold what is installed against the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openmrc.cli.fabric_files import FabricFile, Json, answer, load_plan


def diff(
    file: FabricFile,
    switch: Annotated[str, typer.Argument(help="Switch the dump is of.")],
    dump: Annotated[Path | None, typer.Argument(help="`ip -6 -j route`, CONFIG_DB JSON, FRR text or JSON.")] = None,
    of: Annotated[str, typer.Option("--of", help="linux, sonic or frr: what wrote the dump.")] = "linux",
    namespace: Annotated[str | None, typer.Option("--netns", help="Ask this network namespace instead.")] = None,
    breakout: Annotated[int, typer.Option(min=1, help="Ports a cage, for port names.")] = 1,
    lanes: Annotated[int, typer.Option(min=1, help="Lanes a cage, for port names.")] = 8,
    as_json: Json = False,
) -> None:
    """Print what is missing, extra or wrong on a switch; exit 1 when anything is."""
    import msgspec

    from openmrc.errors import UsageError
    from openmrc.fabric.diff import compare
    from openmrc.fabric.export.view import Options

    if (dump is None) == (namespace is None):
        raise UsageError("give a dump file or --netns NAME, one of the two")
    plan = load_plan(file)
    text = _dump_of(namespace) if namespace else _read(dump)
    source = f"namespace {namespace}" if namespace else str(dump)
    found = compare(plan, plan.topology.node_named(switch), of, text, source, Options(breakout, lanes))
    answer({"clean": found.clean, **msgspec.to_builtins(found)}, as_json)
    if not found.clean:
        raise typer.Exit(1)


def _read(path: Path | None) -> str:
    from openmrc.documents import MOST_DUMP_BYTES, read_text

    assert path is not None
    return read_text(path, MOST_DUMP_BYTES)


def _dump_of(namespace: str) -> str:
    """Ask iproute2 for the routes of a network namespace."""
    import subprocess

    from openmrc.errors import ConfigError

    command = ["ip", "-n", namespace, "-6", "-j", "route", "show", "table", "main"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{' '.join(command)}: {error}") from None
    if done.returncode:
        raise ConfigError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout or "[]"
