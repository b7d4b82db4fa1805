"""House rules that a machine can check, by reading the sources.

Direction of imports and the ban of clocks and sockets below the worlds are contracts in pyproject.toml too;
here stands what import-linter cannot see.
"""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spec.reachability import UNREACHED, reached, unexcused
from spec.reachability import functions as functions_of_the_package

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "openmrc"
COMPILERS = {
    "core/calls.py", "core/entry_cache.py", "core/fault_guard.py", "core/jit.py", "core/kernel_type.py",
    "core/linking.py", "core/memory.py", "core/object_code.py", "core/table_tuples.py", "core/variants.py",
}  # fmt: skip
SPEAKERS = {"core/jit.py"}  # says on stderr that code is being compiled: silence would look like a hang
SPEAKING_FOLDERS = {"programs"}
SANS_IO = ("engine/", "ctl/profiles/", "wire/", "core/", "fabric/")
WORLDLY = {
    "asyncio", "concurrent", "datetime", "multiprocessing", "os", "random", "select", "selectors", "signal", "socket",
    "ssl", "subprocess", "threading", "time",
}  # fmt: skip
WORLDLY_EXCEPTIONS = {  # the folder of compiled code; how long a compile took
    ("core/cache.py", "os"),
    ("core/cache.py", "time"),
    ("core/jit.py", "time"),
}
COMPILED = {"kernel", "rare_kernel", "entry"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported(path: Path) -> Iterator[str]:
    """The modules a file imports, wherever in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def decorators(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The last names of a function's decorators: `kernel`, `command`, `variant`."""
    called = (node.func if isinstance(node, ast.Call) else node for node in function.decorator_list)
    return {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in called}


def test_numba_is_behind_the_core() -> None:
    for path in sources():
        outside = {module.split(".")[0] for module in imported(path)} & {"numba", "llvmlite"}
        assert not outside or name_of(path) in COMPILERS, f"{name_of(path)} imports {outside}"


def test_the_protocol_knows_no_clock_socket_thread_or_file() -> None:
    for path in sources():
        if name_of(path).startswith(SANS_IO):
            worldly = {module.split(".")[0] for module in imported(path)} & WORLDLY
            worldly -= {module for file, module in WORLDLY_EXCEPTIONS if file == name_of(path)}
            assert not worldly, f"{name_of(path)} imports {worldly}"


def test_the_engine_opens_no_file() -> None:
    for path in sorted((PACKAGE / "engine").rglob("*.py")):
        called = {
            node.func.id for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and hasattr(node.func, "id")
        }
        assert "open" not in called, name_of(path)


def test_only_programs_print() -> None:
    for path in sources():
        if name_of(path) in SPEAKERS or name_of(path).split("/")[0] in SPEAKING_FOLDERS:
            continue
        for node in ast.walk(tree(path)):
            prints = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not prints, f"{name_of(path)}:{getattr(node, 'lineno', 0)} prints"


def test_kernels_say_their_types() -> None:
    for path in sources():
        for function in functions(path):
            if decorators(function) & COMPILED:
                arguments = function.args.args + function.args.kwonlyargs
                untyped = [argument.arg for argument in arguments if argument.annotation is None]
                assert not untyped, f"{name_of(path)}: {function.name} does not say the type of {untyped}"
                assert function.returns is not None, f"{name_of(path)}: {function.name} does not say what it returns"


def test_kernels_of_the_engine_neither_raise_nor_format() -> None:
    for path in sorted((PACKAGE / "engine").rglob("*.py")):
        for function in functions(path):
            if decorators(function) & COMPILED:
                for node in ast.walk(function):
                    assert not isinstance(node, ast.Raise | ast.JoinedStr | ast.Try | ast.NamedExpr), (
                        f"{name_of(path)}:{node.lineno} cannot be compiled, or not without allocating"
                    )


def test_every_function_is_reached_by_a_program_or_says_why_not() -> None:
    """As `make lint` checks, which prints them."""
    assert not unexcused()


def test_the_list_of_unreached_functions_has_nothing_stale() -> None:
    unreached = [name for name in functions_of_the_package() if name not in reached()]
    for prefix in UNREACHED:
        assert any(name.startswith(f"openmrc.{prefix}") for name in unreached), prefix


def test_a_class_name_stands_for_one_thing_in_the_whole_package() -> None:
    homes: dict[str, list[str]] = {}
    for path in sources():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name_of(path))
    assert not {name: places for name, places in homes.items() if len(places) > 1}


LEFT_UNDONE = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "NotImplemented" + "Error"]) + r")\b"
)


def test_nothing_is_left_for_later() -> None:
    for folder in ("openmrc", "tests", "bench", "spec", "docs", "examples", "scenarios"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".md", ".toml", ".yaml", ".yml", ".lua", ".c"}:
                found = LEFT_UNDONE.search(path.read_text(encoding="utf-8"))
                assert found is None, f"{path.relative_to(ROOT)}: {found}"


LONG_FUNCTION = 60  # lines of code, docstring aside; nearly all are under 40


def test_functions_of_the_engine_stay_short() -> None:
    for path in sorted((PACKAGE / "engine").rglob("*.py")):
        for function in functions(path):
            body = function.body[1:] if ast.get_docstring(function) else function.body
            length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert length <= LONG_FUNCTION, f"{name_of(path)}: {function.name} has {length} lines"


def test_folders_export_nothing() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent != PACKAGE:
            code = [node for node in tree(path).body if not isinstance(node, ast.Expr)]
            assert not code, f"{name_of(path)}: import from where a thing lives"


def test_git_tracks_no_environment_and_no_link_out_of_the_tree() -> None:
    """A link to a shared environment, once tracked, replaces that environment wherever it is checked out."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a clone")
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = [(line.split()[0], line.split("\t", 1)[1]) for line in listed.splitlines()]
    links = [name for mode, name in tracked if mode == "120000"]
    outside = [
        name
        for name in links
        if not (ROOT / name).parent.joinpath((ROOT / name).readlink()).resolve().is_relative_to(ROOT)
    ]
    assert not outside
    assert not [name for _, name in tracked if name.split("/")[0].startswith(".venv")]
