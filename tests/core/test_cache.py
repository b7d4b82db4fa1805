"""Where compiled code goes, and what makes it compile again."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from openmrc.core.cache import PACKAGE, WORLDS, cache_dir, sources
from openmrc.core.entry_cache import Locator

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    cache_dir.cache_clear()


def test_each_world_depends_on_the_engine_and_on_itself_alone() -> None:
    live, sim = sources("live"), sources("sim")
    shared = {PACKAGE / "engine" / "requester" / "transmission.py", PACKAGE / "units.py", PACKAGE / "wire" / "codes.py"}
    assert shared <= live & sim
    assert PACKAGE / "live" / "datapath" / "packets" / "receive.py" in live - sim
    assert PACKAGE / "sim" / "network" / "egress.py" in sim - live
    planner = PACKAGE / "planner"
    assert {planner / "course.py", planner / "repairs.py"} <= sources("planner") - sim - live


def test_files_without_kernels_that_none_imports_change_nothing() -> None:
    for world, unused in (("sim", "sim/results/summary.py"), ("live", "live/objects/exchange.py")):
        assert (PACKAGE / unused).is_file()
        assert PACKAGE / unused not in sources(world)


def test_every_file_with_kernels_counts() -> None:
    marks = ("@kernel\n", "@rare_kernel\n", "@entry\n")
    with_kernels = {path for path in PACKAGE.rglob("*.py") if any(mark in path.read_text() for mark in marks)}
    assert with_kernels - {PACKAGE / "core" / "jit.py"} <= set().union(*map(sources, WORLDS))


def test_an_unwritable_cache_is_replaced_by_a_private_folder_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    lines: list[str] = []
    folder = cache_dir("live", "", lines.append)
    assert folder.parent == tmp_path / f"openmrc-{os.getuid()}"
    assert folder.parent.stat().st_mode & 0o077 == 0
    assert str(blocked) in lines[0]
    assert "XDG_CACHE_HOME" in lines[0]


def test_a_folder_that_others_can_write_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    (tmp_path / f"openmrc-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"openmrc-{os.getuid()}").chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = cache_dir("live", "", lambda line: None)
    assert folder.parent != tmp_path / f"openmrc-{os.getuid()}"


def test_an_empty_cache_variable_means_the_default(tmp_path: Path) -> None:
    program = "from openmrc.core.cache import cache_dir; print(cache_dir('live', '', print))"
    environment = {**os.environ, "XDG_CACHE_HOME": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).parent == tmp_path / ".cache" / "openmrc"
    assert not (tmp_path / "numba").exists()


def test_a_module_run_as_a_program_may_have_entries(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from openmrc.core.jit import entry\n\n\n"
        "@entry\ndef twice(n: int) -> int:\n    return 2 * n\n\n\n"
        "print(twice(21))\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "42"


@pytest.mark.needs("jit")
def test_a_process_that_loads_an_entry_imports_nothing_of_the_compiler_and_can_compile_another(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom openmrc.core.jit import entry\n\n\n"
        "@entry\ndef twice(n: int) -> int:\n    return 2 * n\n\n\n"
        "@entry\ndef root(n: int) -> int:\n    return int(n**0.5)\n\n\n"
        "print(twice(21), 'numba.typed.typeddict' in sys.modules)\n"
        "if len(sys.argv) > 1:\n    print(root(49))\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> list[str]:
        command = [sys.executable, str(program), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert run() == ["42", "True"]
    assert run() == ["42", "False"]
    assert run("too") == ["42", "False", "7"]


@pytest.mark.needs("jit")
def test_code_is_the_same_bytes_wherever_its_source_lies(tmp_path: Path) -> None:
    found = []
    for folder in (tmp_path / "one", tmp_path / "another"):
        folder.mkdir()
        (folder / "program.py").write_text(
            "from openmrc.core.jit import entry, kernel\n\n\n"
            "@kernel\ndef half(n: int) -> int:\n    assert n >= 0, 'half of a debt'\n    return n // 2\n\n\n"
            "@entry\ndef quarter(n: int) -> int:\n    return half(half(n))\n\n\n"
            "quarter(84)\n"
        )
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, folder / "program.py"], env=environment, check=True)
        found.append(sorted(path.read_bytes() for path in folder.rglob("*.nbc")))
    assert found[0]
    assert found[0] == found[1]


def test_shipped_code_is_copied_once_and_a_later_compile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    key = cache_dir("live", "", print).name
    (tmp_path / "shipped" / key / "live.datapath").mkdir(parents=True)
    shipped = tmp_path / "shipped" / key / "live.datapath" / "run.nbi"
    shipped.write_bytes(b"shipped")
    monkeypatch.setattr("openmrc.core.cache.SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    for content in (b"shipped", b"compiled here"):
        cache_dir.cache_clear()
        copy = cache_dir("live", "", print) / "live.datapath" / "run.nbi"
        assert copy.read_bytes() == content
        copy.write_bytes(b"compiled here")
    assert [each.name for each in (tmp_path / "two" / "openmrc").iterdir()] == [key]


def test_checkouts_share_the_folder_of_a_module(tmp_path: Path) -> None:
    assert Locator.get_suitable_cache_subpath(str(PACKAGE / "live" / "datapath" / "libc.py")) == "live.datapath"
    others = {Locator.get_suitable_cache_subpath(str(tmp_path / name / "program.py")) for name in ("a", "b")}
    assert len(others) == 2
