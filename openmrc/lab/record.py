"""What is written down about a lab that is up, in /run/openmrc/lab/NAME: enough to find everything again.

The record is begun before the first namespace is made, and removed after the last one is gone, so a lab that died
half-way is found by its record, and by its namespaces' names should the record be lost too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from openmrc.errors import MrcError
from openmrc.fabric.build import build
from openmrc.fabric.fabric_file import load
from openmrc.fabric.usid import usid_plan
from openmrc.lab.layout import Lab, plan_lab
from openmrc.live.objects.handshake import fresh_token

FOLDER = Path("/run/openmrc/lab")
_FABRIC, _RECORD, _TOKEN = "fabric", "record.json", "token"


class PortMaps(msgspec.Struct, frozen=True):
    """The maps of the program on one port, by their numbers in the kernel."""

    settings: int
    queue: int


class Record(msgspec.Struct, kw_only=True):
    """The facts of a lab that its fabric does not tell."""

    fabric_file: str  # name of the copy beside this record
    trimming: bool = True
    complete: bool = False
    build_s: float = 0.0
    maps: dict[str, PortMaps] = {}  # by NODE/INTERFACE
    down: list[str] = []  # cables that are pulled
    was_down: list[str] = []  # cables that have been pulled since the lab came up, these too
    impairments: dict[int, dict[str, Any]] = {}  # by directed link: the words that are in force


def folder(name: str) -> Path:
    """Return where a lab's record is."""
    return FOLDER / name


def begin(name: str, fabric: Path, trimming: bool) -> Record:
    """Write a first record and a copy of the fabric."""
    here = folder(name)
    here.mkdir(parents=True, exist_ok=True)
    record = Record(fabric_file=_FABRIC + fabric.suffix, trimming=trimming)
    shutil.copyfile(fabric, here / record.fabric_file)
    write(name, record)
    return record


def write(name: str, record: Record) -> None:
    """Replace a lab's record, at once or not at all."""
    path = folder(name) / _RECORD
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(record))
    part.replace(path)


def read(name: str) -> Record:
    """Return a lab's record; MrcError if there is no such lab or it is only half there."""
    try:
        record = msgspec.json.decode((folder(name) / _RECORD).read_bytes(), type=Record)
    except FileNotFoundError:
        raise MrcError(f"no lab called {name!r} is up; `mrc lab list` shows what is") from None
    except msgspec.DecodeError as error:
        raise MrcError(f"lab {name!r}: its record is damaged ({error}); `mrc lab down {name}` removes it") from None
    if not record.complete:
        raise MrcError(f"lab {name!r} was never finished; `mrc lab down {name}` removes what there is")
    return record


def plan(name: str, record: Record) -> Lab:
    """Return the plan of a lab that is up."""
    return plan_lab(name, usid_plan(build(load(folder(name) / record.fabric_file))))


def token(name: str) -> str:
    """Return the token that commands in a lab share, made when it is first asked for; only its owner can read it."""
    path = folder(name) / _TOKEN
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w", encoding="ascii") as file:
            file.write(fresh_token())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(part)  # whole, and only the first
        part.unlink()
    return path.read_text("ascii")


def remove(name: str) -> None:
    """Forget a lab."""
    shutil.rmtree(folder(name), ignore_errors=True)


def recorded() -> list[str]:
    """Return the labs that have a record, finished or not."""
    return sorted(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else []
