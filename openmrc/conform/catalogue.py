"""The tests that ship, the clauses that they are about, and the choice of some of them."""

import fnmatch
import functools
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from openmrc.conform.language import Level, ScriptTest
from openmrc.conform.parsing import parse_tests
from openmrc.errors import ConfigError

_HERE = Path(__file__).parent
_PARTS = re.compile(r"[,;]")
_MARK = re.compile(r'@pytest\.mark\.clause\("(?P<clause>[\w-]+)"\)\n(?:@.*\n)*def (?P<test>test_\w+)')


class RegisteredClause(msgspec.Struct, frozen=True):
    """A rule of the register of clauses, as far as tests of devices need it."""

    id: str
    area: str
    section: str
    rule: str
    status: str  # "ours": public sources are silent or disagree
    code: list[str] = []
    tests: list[str] = []
    reason: str = ""


@functools.cache
def clauses() -> dict[str, RegisteredClause]:
    """Return the register of clauses, by id."""
    document = tomllib.loads((_HERE / "clauses.toml").read_text(encoding="utf-8"))
    return {each.id: each for each in msgspec.convert(document["clause"], list[RegisteredClause])}


def clauses_of(name: str) -> list[RegisteredClause]:
    """Return the clauses of a section ("7.5.2", "Table 7-3"), with this id, or of a test ("7.5.2/1")."""
    shown = {test.clause for test in shipped_tests() if test.id == name}
    wanted = name.removeprefix("§").casefold().replace("-", " ")
    found = []
    for clause in clauses().values():
        sections = {
            part.strip().removeprefix("§").casefold().replace("-", " ") for part in _PARTS.split(clause.section)
        }
        if name == clause.id or clause.id in shown or wanted in sections:
            found.append(clause)
    return found


def marked_tests() -> dict[str, list[str]]:
    """Return for each clause the tests of this checkout that are marked with it; an installed package has none."""
    found: dict[str, list[str]] = defaultdict(list)
    root = _HERE.parent.parent
    for path in sorted((root / "tests").rglob("test_*.py")):
        for match in _MARK.finditer(path.read_text(encoding="utf-8")):
            found[match["clause"]].append(f"{path.relative_to(root)}::{match['test']}")
    return dict(found)


@functools.cache
def shipped_tests() -> tuple[ScriptTest, ...]:
    """Return the tests that ship, in order of their files."""
    paths = sorted((_HERE / "scripts").glob("*.mrc"))
    return tuple(test for path in paths for test in read_tests(path))


def read_tests(path: Path) -> list[ScriptTest]:
    """Return the tests of a file, checked against the register."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    tests = parse_tests(text, path.name)
    seen: set[str] = set()
    for test in tests:
        if test.clause not in clauses():
            raise ConfigError(f"{test.source}: no clause {test.clause!r} in the register")
        if test.id in seen:
            raise ConfigError(f"{test.source}: {test.id} is there twice")
        if clauses()[test.clause].status == "ours" and test.level == Level.MUST:
            raise ConfigError(f"{test.source}: {test.clause} is our choice: the test must be `info`, not `must`")
        seen.add(test.id)
    return tests


def chosen(tests: Iterable[ScriptTest], patterns: Sequence[str]) -> list[ScriptTest]:
    """Return the tests that a pattern names: an id, a section, a clause, a part or a level; * and ? are wild."""
    every = list(tests)
    if not patterns:
        return every
    found = [test for test in every if any(_is_named(test, pattern) for pattern in patterns)]
    for pattern in patterns:
        if not any(_is_named(test, pattern) for test in every):
            raise ConfigError(f"{pattern!r} names no test; `mrc conform --list` shows them")
    return found


def _is_named(test: ScriptTest, pattern: str) -> bool:
    names = test.id, test.id.split("/")[0], test.clause, test.part.value, test.level.value
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)
