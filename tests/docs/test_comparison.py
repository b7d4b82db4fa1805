"""The tests that the page of reports names exist, and none is skipped whatever the machine has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "comparison.md").read_text("utf-8")
ROW = re.compile(r"^\| \[[\w -]+\]\(https://github\.com/.*\| (`[^|]+`) \|$", re.MULTILINE)
NEVER = ("skip", "xfail")  # as words of a decorator; `skipif` and `needs` depend on the machine


def named() -> list[str]:
    return [name for cell in ROW.findall(PAGE) for name in re.findall(r"`([^`]+)`", cell)]


def marks(function: ast.FunctionDef) -> Iterator[str]:
    for each in function.decorator_list:
        yield ast.unparse(each)


def python_tests() -> dict[str, tuple[str, list[str]]]:
    """Return the file's text and the marks of each test in Python, those of its module with it."""
    found = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text("utf-8")
        module = re.findall(r"(?m)^pytestmark = (.*)$", text)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = text, [*module, *marks(node)]
    return found


def test_every_test_of_the_page_exists_and_runs_somewhere() -> None:
    python, names = python_tests(), named()
    in_c = {
        name
        for path in (ROOT / "native" / "tests").glob("*.c")
        for name in re.findall(r"TEST\((\w+)\)", path.read_text())
    }
    assert len(names) >= 28
    for name in names:
        function, _, case = name.rstrip("]").partition("[")
        if not function.startswith("test_"):
            assert function in in_c, name
            continue
        assert function in python, name
        text, decorators = python[function]
        assert not case or f'"{case}"' in text, name
        assert not [each for each in decorators if re.search(rf"mark\.({'|'.join(NEVER)})\b", each)], name


def test_every_row_with_a_link_names_a_test() -> None:
    reports = [line for line in PAGE.splitlines() if re.match(r"\| \[[\w -]+ \d+\]\(https://github\.com/", line)]
    assert len(reports) == len(ROW.findall(PAGE)) >= 27
    assert len(re.findall(r"/(?:issues|pull)/\d+", "\n".join(reports))) >= 30
