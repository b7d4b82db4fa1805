"""Tables on disk: one editable text file per switch, or one `.npz` for a whole fabric.

A line is `PREFIX ACTION PORT`, such as `fcbb:bb00:2001::/48 route 5`; `un` has no port.
"""

import ipaddress
import zipfile
import zlib
from pathlib import Path

import numpy as np

from openmrc.base.documents import MOST_DUMP_BYTES, read_text
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Action, Tables
from openmrc.fabric.addressing.usid import prefix_text
from openmrc.fabric.model.topology import Topology

_WORDS = {"un": Action.UN, "route": Action.ROUTE, "ua": Action.UA}
_COLUMNS = ("switch", "block", "usid", "action", "port")


def entry_text(tables: Tables, row: int) -> str:
    action = Action(int(tables.action[row]))
    port = "" if action == Action.UN else f" {int(tables.port[row])}"
    return f"{prefix_text(int(tables.block[row]), int(tables.usid[row]))} {action.name.lower()}{port}"


def switch_text(topology: Topology, tables: Tables, switch: int) -> str:
    own = tables.of(switch)
    lines = [f"# {topology.name(switch)}: {len(own)} entries", *(entry_text(own, row) for row in range(len(own)))]
    return "\n".join(lines) + "\n"


def save(tables: Tables, path: Path) -> None:
    """Write all tables into one `.npz`."""
    np.savez(path, **dict(zip(_COLUMNS, tables.columns(), strict=True)))


def load_tables(topology: Topology, path: Path) -> Tables:
    """Load tables from an `.npz`, a switch's text file, a folder of these, or a folder of `mrc fabric build`.

    In such a folder the text files, which may have been edited, take precedence; `tables.npz` is used if there are
    none.
    """
    if path.is_dir() and (path / "tables.npz").exists() and not (path / "switches").is_dir():
        path = path / "tables.npz"
    if path.is_dir():
        files = sorted((path / "switches" if (path / "switches").is_dir() else path).glob("*.txt"))
        if not files:
            raise ConfigError(f"{path}: contains no tables; expected SWITCH.txt files, or a folder of mrc fabric build")
        return _from_lines(topology, [line for file in files for line in _lines(topology, file)])
    if path.suffix == ".txt":
        return _from_lines(topology, _lines(topology, path))
    try:
        with np.load(path) as data:
            tables = Tables(*(data[name] for name in _COLUMNS))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, LookupError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:  # numpy's, zip's
        raise ConfigError(f"{path}: not a table file: {error or 'it ends early'}") from None
    except MemoryError as error:  # of the length that a column's header tells
        raise ConfigError(f"{path}: not a table file, or one of a far larger fabric: {error}") from None
    if any(column.ndim != 1 or column.dtype.kind not in "iu" for column in tables.columns()):
        raise ConfigError(f"{path}: not a table file: columns are lists of integers")
    if len({len(column) for column in tables.columns()}) != 1:
        raise ConfigError(f"{path}: columns of different length")
    if len(tables) and not (int(tables.switch.min()) >= 0 and int(tables.switch.max()) < topology.nodes):
        raise ConfigError(f"{path}: switch numbers out of range; check that it belongs to this fabric")
    return tables


_Line = tuple[int, int, int, int, int]


def _lines(topology: Topology, path: Path) -> list[_Line]:
    text = read_text(path, MOST_DUMP_BYTES, "ascii")
    switch = topology.node_named(path.stem)
    parsed = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            parsed.append((switch, *_entry(line.split(), f"{path}:{number}")))
    return parsed


def _entry(tokens: list[str], where: str) -> tuple[int, int, int, int]:
    expected = "expected PREFIX un, or PREFIX route|ua PORT"
    if len(tokens) not in (2, 3) or tokens[1] not in _WORDS or (len(tokens) == 2) != (tokens[1] == "un"):
        raise ConfigError(f"{where}: {' '.join(tokens)!r}; {expected}")
    try:
        prefix = ipaddress.IPv6Network(tokens[0])
        port = int(tokens[2]) if len(tokens) == 3 else -1
    except ValueError:
        raise ConfigError(f"{where}: {' '.join(tokens)!r}; {expected}") from None
    if prefix.prefixlen != 48 or not 0 <= port + 1 <= 1 << 20:
        raise ConfigError(f"{where}: {' '.join(tokens)!r}; prefixes are /48 and ports 0 and up")
    value = int(prefix.network_address) >> 80
    return value >> 16, value & 0xFFFF, int(_WORDS[tokens[1]]), port


def _from_lines(topology: Topology, lines: list[_Line]) -> Tables:
    switch, block, usid, action, port = (np.array(column) for column in zip(*lines, strict=True)) if lines else [[]] * 5
    return Tables(
        np.asarray(switch, np.int32), np.asarray(block, np.uint32), np.asarray(usid, np.uint16),
        np.asarray(action, np.int8), np.asarray(port, np.int32),
    )  # fmt: skip
