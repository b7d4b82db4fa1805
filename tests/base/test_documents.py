"""Files that are too large, too deep or endless are refused at once, with file and line, wherever one is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openmrc.base.documents import MOST_DEPTH, composed, parse_json, read_text
from openmrc.base.faults import Schedule
from openmrc.base.yaml_file import decode_text
from openmrc.ctl.profiles.ev_document import parse as parse_evs
from openmrc.errors import ConfigError
from openmrc.fabric.model.build import load as load_fabric
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.parts import load_parts
from openmrc.sim.scenario.description import load as load_scenario
from openmrc.sim.scenario.matrix import read as read_matrix
from openmrc.sim.sweep import read as read_sweep

DEEP = "name: x\nhosts:\n  count: " + "[" * 1_000_000


def read_evs(path: Path) -> object:
    return parse_evs(read_text(path), str(path))


READERS = [load_fabric, load_scenario, read_sweep, Schedule.read, load_parts, read_evs]
IDS = ["fabric", "scenario", "sweep", "schedule", "parts", "ev"]


@pytest.mark.parametrize("reader", READERS, ids=IDS)
def test_a_million_brackets_are_refused_with_file_and_line(reader: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(DEEP)
    with pytest.raises(ConfigError, match=rf"deep.yaml:3: nested deeper than {MOST_DEPTH} levels"):
        reader(path)


@pytest.mark.parametrize("reader", READERS, ids=IDS)
@pytest.mark.parametrize("name", ["big.yaml", "big.topo"])
def test_a_hundred_megabytes_are_refused_unread(reader: Callable[[Path], object], name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(ConfigError, match=rf"{name}: larger than \d+ bytes"):
        reader(path)


def test_a_matrix_without_line_ends_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.cm"
    with path.open("wb") as file:
        file.write(b"Nodes 4\n")
        file.truncate(100 << 20)
    with pytest.raises(ConfigError, match=r"big.cm:2"):
        read_matrix(path)


def test_aliases_may_repeat_a_little_and_no_more() -> None:
    composed("a: &a [1, 2]\nb: [*a, *a]\n", "f")
    assert (
        decode_text("name: &n x\nhosts: {count: 1}\nplanes: [{host_gbps: 1, t0: {down: 1}}]", Fabric, "f").name == "x"
    )
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    with pytest.raises(ConfigError, match=r"^f:5: aliases repeat more than 100000 values"):
        decode_text(bomb, Fabric, "f")
    with pytest.raises(ConfigError, match=r"^f:2: contains itself"):
        decode_text("name: x\nhosts: &a [*a]\n", Fabric, "f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\n? [a]\n: b\n", r"f:2: a key must be a word"),
        ("name: x\nhosts: *nowhere\n", r"f:2: not YAML: found undefined alias"),
        ("name: x\nhosts: {count: " + "9" * 5000 + "}\n", r"f: not YAML: Exceeds the limit"),
        ("name: x\nhosts: {\n", r"f:3: not YAML"),
        ("name: \x00\n", r"f: not YAML"),
        ("", r"f: nothing in it; expected a mapping with name"),
    ],
)
def test_what_is_no_such_document_says_why(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        decode_text(text, Fabric, "f")


def test_deep_json_is_refused() -> None:
    assert parse_json("[1]", "f") == [1]
    with pytest.raises(ConfigError, match="f: nested too deep"):
        parse_json("[" * 1_000_000, "f")
    with pytest.raises(ConfigError, match="f:2: not JSON"):
        parse_json('{"a":\n x}', "f")


def test_a_file_at_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x" * 10)
    assert len(read_text(path, 10)) == 10
    with pytest.raises(ConfigError, match="larger than 9 bytes"):
        read_text(path, 9)


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("utf-8", "cannot be read: not UTF-8 text, byte 2 is 0xff"), ("ascii", "not ASCII text, byte 2 is 0xff")],
)
def test_bytes_that_are_no_text_are_named_with_their_place(encoding: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"a:\xff")
    with pytest.raises(ConfigError, match=f"a.yaml: .*{said}"):
        read_text(tmp_path / "a.yaml", encoding=encoding)


def test_a_file_that_cannot_be_opened_says_why_without_numbers_of_the_system(tmp_path: Path) -> None:
    for path, why in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file or directory")):
        with pytest.raises(ConfigError) as refused:
            read_text(path)
        assert str(refused.value) == f"{path}: cannot be read: {why}"
