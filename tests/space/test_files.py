"""Files of users, whole and damaged, by every name: the same as undamaged, or one line that names the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from openmrc.base.documents import read_text
from openmrc.base.faults import Schedule
from openmrc.ctl.profiles.ev_document import parse as parse_evs
from openmrc.errors import ConfigError
from openmrc.fabric.model.build import load as load_fabric
from openmrc.sim.scenario.description import load as load_scenario
from openmrc.sim.sweep import read as read_sweep
from tests.needs import is_root

from .drawing import drawn

ROOT = Path(__file__).parents[2]
TEXTS = {
    "fabric": (ROOT / "scenarios/fabrics/lab.yaml").read_text(),
    "scenario": (ROOT / "tests/space/two.yaml").read_text(),
    "sweep": f"scenario: {ROOT}/scenarios/demo.yaml\nvary:\n  transport.mtu: [1024, 4096]\n",
    "schedule": "- {at: 1ms, down: plane 0}\n- {at: 2ms, up: plane 0, loss: 1%}\n",
    "ev": (ROOT / "scenarios/ev/udp.yaml").read_text(),
}
READERS: dict[str, Callable[[Path], Any]] = {
    "fabric": load_fabric,
    "scenario": load_scenario,
    "sweep": read_sweep,
    "schedule": Schedule.read,
    "ev": lambda path: parse_evs(read_text(path), str(path)),
}
HARMLESS = {"none", "CRLF", "byte order mark", "comment in Greek", "no last newline", "JSON"}
REFUSED = {"missing", "a folder", "Latin-1", "zero bytes", "tabs", "a word", "1,000 deep", "an anchor of itself"}


def damaged(text: str, damage: str) -> bytes:
    """Return what is in the file."""
    data = yaml.safe_load(text)
    match damage:
        case "CRLF":
            return text.replace("\n", "\r\n").encode()
        case "byte order mark":
            return text.encode("utf-8-sig")
        case "comment in Greek":
            return f"# αβγ\n{text}".encode()
        case "no last newline":
            return text.rstrip("\n").encode()
        case "JSON":
            return json.dumps(data).encode()
        case "empty":
            return b""
        case "Latin-1":
            return text.encode() + "# café\n".encode("latin-1")
        case "zero bytes":
            return bytes(100) + text.encode()
        case "half":
            return text.encode()[: len(text) // 2]
        case "tabs":
            return b"\t" + text.lstrip().replace("\n", "\n\t").encode()
        case "a list":
            return json.dumps([data, data]).encode()
        case "a word":
            return b"word\n"
        case "unknown key" | "key twice":
            whole = json.dumps(data)
            first = next(iter(data if isinstance(data, dict) else data[0]))
            at = whole.index("{") + 1
            return f'{whole[:at]}"{first if damage == "key twice" else "no_such_key"}": 1, {whole[at:]}'.encode()
        case "400 digits":
            return json.dumps(data).replace("1", "1" * 400).encode()
        case "1,000 deep":
            return b"[" * 1000 + b"]" * 1000
        case "an anchor of itself":
            return b"&a [*a]\n"
    return text.encode()


def laid(row: SimpleNamespace, folder: Path) -> Path:
    """Write the file of a row; return the path by which it is read."""
    name = "x" * 250 if row.name == "long" else row.name
    inner = folder / "inner"
    inner.mkdir()
    path = inner / name
    if row.damage == "a folder":
        path.mkdir()
    elif row.damage != "missing":
        path.write_bytes(damaged(TEXTS[row.file], row.damage))
    if row.damage == "no rights":
        path.chmod(0)
    match row.reached:
        case "from its folder":
            return Path(name)
        case "by a link":
            (folder / "link").symlink_to(path)
            return folder / "link"
        case "through a linked folder":
            (folder / "linked").symlink_to(inner)
            return folder / "linked" / name
    return path


def outcome(read: Callable[[Path], Any], path: Path) -> tuple[str, str]:
    """Return what a reader makes of a file, without where it lies, and how it refuses it."""
    try:
        return repr(read(path)).replace(str(path), "FILE"), ""
    except ConfigError as error:
        return "", str(error)


@drawn("files", few=60)
def test_a_file_is_read_as_undamaged_or_refused_in_one_line(
    row: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = laid(row, tmp_path), READERS[row.file]
    good = tmp_path / "good.yaml"
    good.write_text(TEXTS[row.file])
    monkeypatch.chdir(tmp_path / "inner")
    got, refusal = outcome(read, path)
    if row.damage in HARMLESS:
        assert (got, refusal) == outcome(read, good)
    elif row.damage in REFUSED or refusal:
        assert refusal.count("\n") == 0
        assert str(path) in refusal or row.damage == "half"  # of a sweep: that names another file, whose name is cut
        assert row.damage != "unknown key" or "no_such_key" in refusal
    elif row.damage == "no rights":
        assert is_root()
    else:
        assert yaml.safe_load(path.read_bytes()) != yaml.safe_load(TEXTS[row.file])
