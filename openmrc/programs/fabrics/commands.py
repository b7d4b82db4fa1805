"""Short commands of `mrc fabric`; longer ones have a file of their own."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from openmrc.base.documents import MOST_DUMP_BYTES, read_text, schema_of, schema_text
from openmrc.errors import ConfigError, UsageError
from openmrc.fabric.addressing.profiles import profile as make
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.cables.cabled import check_cabling
from openmrc.fabric.cables.listing import csv_blocks, list_cables
from openmrc.fabric.cables.lldp import read_neighbours
from openmrc.fabric.cables.materials import bill, csv_text
from openmrc.fabric.cables.ports import check_scheme
from openmrc.fabric.model.build import build, load_placed
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.parts import load_parts
from openmrc.fabric.proof.show import fabric_facts, node_facts, path_facts
from openmrc.programs.fabrics.files import (
    FabricFile,
    answer,
    load_plan,
    load_topology,
    seconds_since,
    tell,
    write_blocks,
)
from openmrc.programs.outcome import Json, give

Names = Annotated[str, typer.Option("--names", help="Interface names of switches: linux, sonic, cumulus or eos.")]


def cabled(
    file: FabricFile,
    lldp: Annotated[
        list[Path], typer.Option("--lldp", help="Folder of NODE.json files, or one such file; may be repeated.")
    ],
    as_json: Json = False,
) -> None:
    """Compare LLDP dumps of lldpctl, SONiC or NVUE with the plan; exit 1 if a cable is wrong, swapped or missing."""
    dumps = {path.stem: read_neighbours(read_text(path, MOST_DUMP_BYTES), str(path)) for path in _dumps(lldp)}
    report = check_cabling(load_topology(file), dumps)
    result = {"cables": report.cables, "right": report.right, **report.counts(), "unchecked": report.unchecked}
    answer({"clean": report.is_clean, **result, "findings": msgspec.to_builtins(report.findings)}, as_json)
    if not report.is_clean:
        raise typer.Exit(1)


def _dumps(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise ConfigError(f"--lldp: {path}: contains no NODE.json, such as p0-t0-00.json of `lldpctl -f json`")
        found += inside
    name, count = max(Counter(path.stem for path in found).items(), key=lambda each: each[1])
    if count > 1:
        raise UsageError(f"--lldp: {count} dumps of {name!r}; give one")
    return found


def schema(as_json: Json = False) -> None:
    """Print the JSON Schema of fabric.yaml, indented or on one line."""
    give(schema_of(Fabric), as_json, schema_text(Fabric).rstrip())


def profile(
    file: FabricFile,
    source: Annotated[str, typer.Argument(help="Source NIC.")],
    destination: Annotated[str, typer.Argument(help="Destination NIC.")],
    mode: Annotated[
        Literal["explicit", "generated"], typer.Option(help="List EVs, or let the endpoint generate them.")
    ] = "explicit",
    count: Annotated[int, typer.Option(min=1, help="Number of EVs in an explicit profile.")] = 256,
    as_json: Json = False,
) -> None:
    """Print the EV format and profile of a pair of NICs, as the endpoint reads them."""
    plan = load_plan(file)
    name = plan.topology.node_named
    answer(make(plan, name(source), name(destination), mode, count), as_json)


def path(
    file: FabricFile,
    source: Annotated[str, typer.Argument(help="Source NIC.")],
    destination: Annotated[str, typer.Argument(help="Destination NIC.")],
    ev: Annotated[int, typer.Option("--ev", min=0, help="EV number; its lowest bits are the plane.")] = 0,
    as_json: Json = False,
) -> None:
    """Follow one EV from NIC to NIC, hop by hop."""
    plan = load_plan(file)
    tell(path_facts(plan, source, destination, ev), as_json)


def show(
    file: FabricFile,
    node: Annotated[str | None, typer.Argument(help="Show one NIC or switch.")] = None,
    as_json: Json = False,
) -> None:
    """Summarise a fabric, or show one node with its links and table."""
    if node:
        fabric, where = load_placed(file)
        topology = build(fabric)
        plan = usid_plan(topology, where) if fabric.is_regular else None
        tell(node_facts(topology, plan, node), as_json)
    else:
        tell(fabric_facts(load_topology(file)), as_json)


def cables(
    file: FabricFile,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write [default: print].")] = None,
    names: Names = "sonic",
    as_json: Json = False,
) -> None:
    """List every cable: both ends with rack, cage and lane, label, length class and transceivers."""
    start = time.perf_counter()
    scheme = check_scheme(names)
    found = list_cables(load_topology(file))
    blocks = csv_blocks(found, scheme)
    if out is None and not as_json:
        for block in blocks:
            typer.echo(block, nl=False)
        return
    size = write_blocks(out, blocks) if out else 0
    counts = Counter(found.length_mm.tolist())
    lengths = {f"{length / 1000:g}": counts[length] for length in sorted(counts)}
    result = {"cables": len(found), "by_length_m": lengths, **_written(out, size)}
    answer({**result, "wall_s": seconds_since(start)}, as_json)


def bom(
    file: FabricFile,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write [default: print].")] = None,
    parts: Annotated[Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.")] = None,
    as_json: Json = False,
) -> None:
    """Count the parts: machines, NICs, switches, transceivers, and cables by medium and length."""
    items = bill(list_cables(load_topology(file)), load_parts(parts))
    if out:
        write_blocks(out, [csv_text(items)])
    if as_json:
        answer({"items": msgspec.to_builtins(items), **_written(out, 0)}, True)
    elif out is None:
        typer.echo(csv_text(items), nl=False)


def _written(out: Path | None, size: int) -> dict[str, Any]:
    return {"out": str(out), **({"bytes": size} if size else {})} if out else {}
