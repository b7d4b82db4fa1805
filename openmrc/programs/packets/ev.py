"""`mrc ev`: expand entropy values into their bits on the wire."""

from pathlib import Path
from typing import Annotated

import typer

from openmrc.base.documents import read_text
from openmrc.base.shipped import find
from openmrc.ctl.profiles.ev_document import EvDocument, parse
from openmrc.ctl.profiles.ev_format import EvExpansion
from openmrc.ctl.profiles.ev_generation import generate
from openmrc.ctl.profiles.field_rules import holding
from openmrc.errors import CallError, ConfigError
from openmrc.programs.outcome import Json, give

ProfileFile = Annotated[Path, typer.Argument(metavar="PROFILE.yaml", help="YAML file with format, fields and EVs.")]


def expand(
    profile: ProfileFile,
    count: Annotated[int | None, typer.Option(min=1, help="Generate this many EVs (mode: generated).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the generated EVs; the same seed gives the same EVs.")] = 1,
    as_json: Json = False,
) -> None:
    """Print each EV of a profile and its bits on the wire."""
    document = _read(profile)
    evs = _listed(document, profile) if count is None else _generated(document, count, seed, profile)
    pairs = [{"ev": ev.hex(), "expanded": document.expansion.expand(ev).hex()} for ev in evs]
    give({"evs": pairs}, as_json, "\n".join(_line(document.expansion, ev) for ev in evs))


def show(profile: ProfileFile, as_json: Json = False) -> None:
    """Print the fields of a profile: their wire bits, and how many different EVs they allow."""
    document = _read(profile)
    expansion, form = document.expansion, document.expansion.format
    carrier = " with SRH" if form.has_srh else ""
    title = f"{form.mode.name}{carrier}: {form.bits} bits on the wire from {expansion.ev_bits} EV bits"
    give(_described(document), as_json, "\n".join([title, *_rows(expansion)]))


def _read(path: Path) -> EvDocument:
    path = find(path)
    return parse(read_text(path), str(path))


def _listed(document: EvDocument, path: Path) -> tuple[bytes, ...]:
    if document.evs is None:
        hint = "list some, or give --count N" if document.generated else "an explicit profile lists its EVs"
        raise ConfigError(f"{path}: profile.evs: missing; {hint}")
    for index, ev in enumerate(document.evs):
        if document.generated and not document.expansion.is_within_bounds(ev):
            numbers = ", ".join(f"{number:#x}" for number in document.expansion.numbers(ev))
            typer.echo(f"mrc: {path}: profile.evs[{index}]: ({numbers}) is outside min_val..max_val", err=True)
    return document.evs


def _generated(document: EvDocument, count: int, seed: int, path: Path) -> list[bytes]:
    if not document.generated:
        raise ConfigError(f"{path}: profile.mode: explicit; --count generates EVs in mode generated only")
    try:
        return generate(document.expansion, count, seed)
    except CallError as error:
        raise ConfigError(f"{path}: --{error.reason}") from error


def _line(expansion: EvExpansion, ev: bytes) -> str:
    """Return an EV, its expansion, and the parts of the expansion, without trailing zeros."""
    digits = max(1, -(-expansion.ev_bits // 4))
    wire = expansion.expand(ev).hex()[: -(-expansion.format.bits // 4)]
    parts = " ".join(
        f"{holding(field.words, number):0{-(-width // 4)}x}"
        for field, width, number in zip(expansion.fields, expansion.format.widths, expansion.numbers(ev), strict=False)
    )
    return f"{ev.hex()[:digits]} -> {wire}  ({parts})"


def _described(document: EvDocument) -> dict[str, object]:
    expansion = document.expansion
    return {
        "mode": str(expansion.format.mode.name).lower(),
        "generated": document.generated,
        "format_bits": expansion.format.bits,
        "ev_bits": expansion.ev_bits,
        "choices": expansion.choices if document.generated else None,
        "evs": 0 if document.evs is None else len(document.evs),
    }


def _rows(expansion: EvExpansion) -> list[str]:
    rows, at = [], 0
    for index, (field, width) in enumerate(zip(expansion.fields, expansion.format.widths, strict=False)):
        place = f"  field {index}: wire bits {at}..{at + width - 1}, starts as {field.init_val:#x}"
        least, most = field.bounds
        taken = f", {field.ev_bits} EV bits under mask {field.mask:#x}, {least}..{most}" if field.mask else ", fixed"
        rows.append(place + taken)
        at += width
    return rows
