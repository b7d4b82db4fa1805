"""The record of a lab, in /run/openmrc/lab/NAME: enough to find all its parts again, also of an incomplete lab."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from openmrc.errors import MrcError
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.build import build, load
from openmrc.lab.layout import Lab, plan_lab
from openmrc.lab.namespaces import of_lab
from openmrc.live.objects.handshake import fresh_token

FOLDER = Path("/run/openmrc/lab")
_FABRIC, _RECORD, _TOKEN = "fabric", "record.json", "token"


class PortMaps(msgspec.Struct, frozen=True):
    """The maps of the program that all ports share, by kernel id; a port's entry is its directed link."""

    settings: int
    queue: int


class Record(msgspec.Struct, kw_only=True):
    """The properties of a lab that its fabric does not define."""

    fabric_file: str  # name of the copy next to this record
    trimming: bool = True
    complete: bool = False
    build_s: float = 0.0
    ports: int = 0
    maps: PortMaps = PortMaps(0, 0)
    down: list[str] = []  # pulled cables
    was_down: list[str] = []  # cables that have been pulled since the lab came up, including these
    impairments: dict[int, dict[str, Any]] = {}  # by directed link: the impairments in force


def folder(name: str) -> Path:
    """Return the folder of a lab's record."""
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
    """Replace a lab's record atomically."""
    path = folder(name) / _RECORD
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(record))
    part.replace(path)


def read(name: str) -> Record:
    """Return a lab's record; MrcError if there is no such lab, it is incomplete, or its namespaces are gone."""
    try:
        record = msgspec.json.decode((folder(name) / _RECORD).read_bytes(), type=Record)
    except FileNotFoundError:
        raise MrcError(f"no lab called {name!r} is up; `mrc lab list` shows all labs") from None
    except msgspec.DecodeError as error:
        raise MrcError(f"lab {name!r}: its record is damaged ({error}); `mrc lab down {name}` removes it") from None
    if not record.complete:
        raise MrcError(f"lab {name!r} is incomplete; `mrc lab down {name}` removes it")
    if not of_lab(name):  # after a restart of the machine, or removed by hand
        raise MrcError(f"lab {name!r} is gone: it has no namespaces; `mrc lab down {name}` removes its record")
    return record


def plan(name: str, record: Record) -> Lab:
    """Return the plan of a lab that is up."""
    return plan_lab(name, usid_plan(build(load(folder(name) / record.fabric_file))))


def token(name: str) -> str:
    """Return the token that commands in a lab share, created on first use; only its owner can read it."""
    path = folder(name) / _TOKEN
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w", encoding="ascii") as file:
            file.write(fresh_token())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(part)  # written completely, and only by the first process
        part.unlink()
    return path.read_text("ascii")


def remove(name: str) -> None:
    shutil.rmtree(folder(name), ignore_errors=True)


def recorded() -> list[str]:
    """Return the labs that have a record, complete or not."""
    return sorted(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else []
