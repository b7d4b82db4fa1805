"""`mrc fabric cables`, `bom`, `racks` and `netbox`: documents for ordering and installing a fabric."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openmrc.cli.fabrics.fabric_files import FabricFile, Json, answer, load_topology, seconds_since
from openmrc.cli.outcome import check_folder

if TYPE_CHECKING:
    from openmrc.fabric.cabling.cables import Cables
    from openmrc.fabric.cabling.placement import Place

Names = Annotated[str, typer.Option("--names", help="Interface names of switches: linux, sonic, cumulus or eos.")]
PlacesFile = Annotated[
    Path | None, typer.Option("--places", help="CSV of device,rack,unit[,row,position] for devices at other places.")
]
PartsFile = Annotated[Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.")]


def cables(
    file: FabricFile,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write [default: print].")] = None,
    assemblies: Annotated[
        Path | None, typer.Option("--assemblies", help="CSV file for trunks, fan-outs and shuffle boxes as ordered.")
    ] = None,
    names: Names = "sonic",
    places: PlacesFile = None,
    as_json: Json = False,
) -> None:
    """List every cable: both ends with rack, cage and lane, label, length class, transceivers and assembly."""
    from openmrc.fabric.cabling import assemblies as assembled
    from openmrc.fabric.cabling.cables import csv_blocks
    from openmrc.fabric.cabling.ports import check_scheme

    start = time.perf_counter()
    scheme = check_scheme(names)
    found = _cables_of(file, places)
    ordered = assembled.assemble(found)
    blocks = csv_blocks(found, scheme, ordered.names_by_cable())
    if assemblies is not None:
        write_blocks(assemblies, assembled.csv_blocks(ordered))
    if out is None and not as_json:
        _print_blocks(blocks)
        return
    size = write_blocks(out, blocks) if out else 0
    counts = {"cables": len(found), "assemblies": ordered.counts(), **_lengths(found)}
    answer({**counts, **_written(out, size), "wall_s": seconds_since(start)}, as_json)


def bom(
    file: FabricFile,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write [default: print].")] = None,
    spares: Annotated[
        list[str] | None, typer.Option("--spares", help="Share to keep in store, such as 2%, or transceiver=3%.")
    ] = None,
    parts: PartsFile = None,
    places: PlacesFile = None,
    as_json: Json = False,
) -> None:
    """Count the parts to order: switches, transceivers, cables as assembled, by length, racks; and spares."""
    import msgspec

    from openmrc.fabric.cabling.materials import bill, csv_text, spare_shares
    from openmrc.fabric.model.parts import load_parts

    items = bill(_cables_of(file, places), load_parts(parts), spare_shares(spares or []))
    if out:
        write_blocks(out, [csv_text(items)])
    if as_json:
        answer({"items": msgspec.to_builtins(items), **_written(out, 0)}, True)
    elif out is None:
        typer.echo(csv_text(items), nl=False)


def racks(
    file: FabricFile,
    rack: Annotated[str | None, typer.Argument(help="Rack to print as text, such as p0-t0-r01.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for elevations: one SVG per row of racks, and racks.csv.")
    ] = None,
    places: PlacesFile = None,
    as_json: Json = False,
) -> None:
    """Show rack elevations: one rack as text, or all racks as SVG and CSV."""
    from openmrc.errors import UsageError
    from openmrc.fabric.cabling import elevations
    from openmrc.fabric.cabling.placement import place

    if (rack is None) == (out is None):
        raise UsageError("racks: give a rack, or --out FOLDER for all of them")
    placement = place(load_topology(file), given_places(places))
    if rack is not None:
        drawn = elevations.text(placement, rack)
        answer({"rack": rack, "elevation": drawn}, True) if as_json else typer.echo(drawn)
        return
    assert out is not None
    check_folder(out, "--out")
    out.mkdir(parents=True, exist_ok=True)
    write_blocks(out / "racks.csv", (line + "\n" for line in elevations.csv_lines(placement)))
    rows = [write_blocks(out / name, [svg]) for name, svg in elevations.svg_rows(placement)]
    answer({"racks": len(placement.racks), "rows": len(rows), "out": str(out)}, as_json)


Folder = Annotated[Path | None, typer.Option("--out", help="Folder to write files to.")]
Push = Annotated[
    str | None, typer.Option("--push", metavar="URL", help="NetBox in which to create it all, over its REST API.")
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the API token [default: $NETBOX_TOKEN].")
]
Site = Annotated[str, typer.Option("--site", help="Name of the site in NetBox.")]
Prefix = Annotated[str, typer.Option("--prefix", help="Before each device's name, such as the fabric's.")]
CableSites = Annotated[
    bool, typer.Option("--cable-sites/--no-cable-sites", help="Columns that older importers of cables refuse.")
]


def netbox(
    file: FabricFile,
    out: Folder = None,
    push: Push = None,
    token_file: TokenFile = None,
    site: Site = "fabric",
    names: Names = "sonic",
    prefix: Prefix = "",
    cable_sites: CableSites = True,
    places: PlacesFile = None,
    as_json: Json = False,
) -> None:
    """Write files for NetBox's importers, or create it all in a NetBox: sites, racks, devices, interfaces and cables.

    A --push that was interrupted is continued by the same command: what NetBox has is not created again.
    """
    from openmrc.cli.fabrics.cabling.fabric_netbox_push import push_to
    from openmrc.errors import UsageError
    from openmrc.fabric.cabling.netbox import NetboxNaming, files
    from openmrc.fabric.cabling.ports import check_scheme

    if (out is None) == (push is None):
        raise UsageError("netbox: give --out FOLDER for files, or --push URL")
    start = time.perf_counter()
    naming = NetboxNaming(site, check_scheme(names), prefix, cable_sites)
    found = _cables_of(file, places)
    if push is not None:
        answer(
            {"netbox": push, "tables": push_to(push, token_file, found, naming), "wall_s": seconds_since(start)},
            as_json,
        )
        return
    assert out is not None
    check_folder(out, "--out")
    out.mkdir(parents=True, exist_ok=True)
    sizes = {name: write_blocks(out / name, blocks) for name, blocks in files(found, naming)}
    answer({"out": str(out), "files": sizes, "wall_s": seconds_since(start)}, as_json)


def _cables_of(file: Path, places: Path | None) -> Cables:
    from openmrc.fabric.cabling.cables import list_cables

    return list_cables(load_topology(file), given=given_places(places))


def given_places(path: Path | None) -> dict[str, Place] | None:
    """Read a file of places; return None if none is given."""
    from openmrc.fabric.cabling.places_file import read_places

    return read_places(path) if path else None


def _lengths(found: Cables) -> dict[str, Any]:
    """Count cables by length class, in metres."""
    from collections import Counter

    counts = Counter(found.length_mm.tolist())
    return {"by_length_m": {f"{length / 1000:g}": counts[length] for length in sorted(counts)}}


def write_blocks(path: Path, blocks: Iterable[str]) -> int:
    """Write blocks of text; return the number of characters."""
    from openmrc.errors import ConfigError

    try:
        with path.open("w", encoding="utf-8") as stream:
            return sum(stream.write(block) for block in blocks)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _print_blocks(blocks: Iterator[str]) -> None:
    for block in blocks:
        typer.echo(block, nl=False)


def _written(out: Path | None, size: int) -> dict[str, Any]:
    return {"out": str(out), **({"bytes": size} if size else {})} if out else {}
