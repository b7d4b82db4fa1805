"""The shared object: what it needs, what it shows, and that its description of the tables is not stale."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.native import library as native
from openmrc.native.description import header
from openmrc.programs.main import app
from tests.native.building import ROOT, library

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit")


def read(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def made() -> Path:
    return library()


def test_it_needs_the_c_library_alone(made: Path) -> None:
    assert re.findall(r"\(NEEDED\).*\[(.*)\]", read("readelf", "-d", str(made))) == ["libc.so.6"]


def test_it_has_a_soname_and_no_text_relocations_and_its_stack_is_not_executable(made: Path) -> None:
    dynamic = read("readelf", "-d", str(made))
    assert f"[{native.SONAME}]" in dynamic
    assert "TEXTREL" not in dynamic
    (stack,) = (line for line in read("readelf", "-lW", str(made)).splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack


def test_it_shows_nothing_but_its_interface(made: Path) -> None:
    shown = [line.split()[-1] for line in read("nm", "-D", "--defined-only", str(made)).splitlines()]
    functions = [name for name in shown if not name.startswith(("IBVERBS_", "MRC_", "RDMACM_"))]
    assert functions
    assert not [
        name for name in functions if not name.startswith(("ibv_", "_ibv_", "mrc_", "rdma_create_event_channel"))
    ]
    assert not [name for name in functions if name.startswith("mrc_entry")]


def test_it_is_small(made: Path) -> None:
    assert made.stat().st_size < 2_000_000


def test_it_names_no_folder_in_which_it_was_built(made: Path) -> None:
    """Else the same commit would make other bytes elsewhere."""
    for folder in (ROOT, made.parents[2], made.parents[2].resolve()):
        assert str(folder).encode() not in made.read_bytes()


def test_the_description_it_was_built_with_is_that_of_these_sources(made: Path) -> None:
    """A layout that changed without a new library would let C write into the wrong fields."""
    built = (made.parents[1] / "description.h").read_text(encoding="ascii")
    digest = re.search(r'MRC_LAYOUT_DIGEST "(.*)"', built)
    assert digest is not None
    assert header(digest[1]) == built
    assert digest[1].encode() in made.read_bytes()


def test_a_changed_row_changes_the_description(monkeypatch: pytest.MonkeyPatch) -> None:
    from openmrc.live.datapath import rows

    before = header("")
    monkeypatch.setitem(rows.PlaneSocket.__annotations__, "added", rows.PlaneSocket.__annotations__["down"])
    assert header("") != before


def test_c_holds_nothing_of_the_protocol() -> None:
    """No opcode, header, SACK or timer: C opens sockets, keeps objects and calls entries."""
    protocol = re.compile(r"\b(BTH|AETH|RETH|SETH|METH|SACK|NACK|cwnd|ePSN|opcode_(write|sack))\b")
    for path in sorted((ROOT / "native" / "src").rglob("*.[ch]")):
        assert protocol.search(path.read_text(encoding="utf-8")) is None, path.name


@pytest.mark.parametrize("asked", ["0", "x", "5:nothing", "-1", "5:qp0", "5:retry:"])
def test_an_error_that_cannot_be_ordered_is_refused(asked: str) -> None:
    library()
    done = CliRunner().invoke(app, ["run", f"--fail-after={asked}", "true"])
    assert done.exit_code != 0
    assert "--fail-after" in str(done.exception) + done.output
