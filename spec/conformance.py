"""Write docs/conformance.md from clauses.toml, from the marks that tests carry, and from what users can reach.

python -m spec.conformance [--check]
"""

from __future__ import annotations

import ast
import functools
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from spec.reachability import reached

ROOT = Path(__file__).parent.parent
CLAUSES = ROOT / "spec" / "clauses.toml"
PAGE = ROOT / "docs" / "conformance.md"
STATUSES = ("done", "partly", "left out", "ours")
LIBRARY_ONLY = "library only"


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One rule, where it stands, and what shows it."""

    id: str
    area: str
    section: str
    rule: str
    status: str
    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()  # path::name
    reason: str = ""

    @property
    def shown_status(self) -> str:
        """The status on the page: a rule whose code no command or public name reaches is in the library only."""
        if self.code and not all(f"openmrc.{name}" in reached() for name in self.code):
            return LIBRARY_ONLY if self.status == "done" else f"{self.status}, {LIBRARY_ONLY}"
        return self.status


def read_clauses() -> list[Clause]:
    """Return the clauses in the order of the file."""
    return msgspec.convert(tomllib.loads(CLAUSES.read_text(encoding="utf-8"))["clause"], list[Clause])


@functools.cache
def marked_tests() -> dict[str, list[str]]:
    """Return for each clause id the tests (path::name) that carry its mark."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for function in find_tests(path):
            for decorator in function.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.clause":
                    found[ast.literal_eval(decorator.args[0])].append(f"{path.relative_to(ROOT)}::{function.name}")
    return dict(found)


def find_tests(path: Path) -> Iterator[ast.FunctionDef]:
    """Yield the test functions of a file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def page(clauses: list[Clause], marks: dict[str, list[str]]) -> str:
    """Return the whole page."""
    found = Counter(clause.shown_status for clause in clauses)
    counts = ", ".join(f"{count} {status}" for status, count in found.most_common())
    lines = [
        "# Conformance",
        "",
        "The rules of OCP MRC 1.0, as far as public sources give them, in our own words: the code that implements each",
        "and the tests that show it. Section numbers are those that readers of the specification cite. Generated from",
        "`spec/clauses.toml` by `python -m spec.conformance`; a test refuses a page that is not current, a rule",
        "without a test, and a reference to code that does not exist.",
        "",
        "* **done**: a command or a public Python name reaches the code, and a test shows the rule.",
        "* **library only**: code and test exist, but no command or public name reaches the code yet.",
        "* **ours**: public sources are silent or disagree; the rule is our choice, for the reason in italics. Times,",
        "  sizes and counts of such rules are fields of `openmrc.engine.state.params.Settings`.",
        "",
        "Which code is reached is computed from the sources by `spec/reachability.py`; tests and benches do not count.",
        "",
        f"{len(clauses)} rules: {counts}.",
    ]
    for area in dict.fromkeys(clause.area for clause in clauses):
        lines += [
            "",
            f"## {area[0].upper()}{area[1:]}",
            "",
            "| rule | section | status | where | tests |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(clause, marks) for clause in clauses if clause.area == area]
    return "\n".join(lines) + "\n"


def _row(clause: Clause, marks: dict[str, list[str]]) -> str:
    where = ", ".join(f"`{name}`" for name in clause.code)
    by_file: dict[str, int] = defaultdict(int)
    for test in shown_by(clause, marks):
        by_file[test.split("::")[0]] += 1
    shown = ", ".join(f"[{Path(path).stem}](../{path}) {count}" for path, count in sorted(by_file.items()))
    summary = f"{clause.rule} *{clause.reason}*" if clause.reason else clause.rule
    return f"| {summary} | {clause.section} | {clause.shown_status} | {where} | {shown} |"


def shown_by(clause: Clause, marks: dict[str, list[str]]) -> list[str]:
    """Return the tests that show a clause: those it names and those that carry its mark."""
    return sorted({*clause.tests, *marks.get(clause.id, [])})


def main() -> int:
    """Write the page, or with --check say whether it is current."""
    text = page(read_clauses(), marked_tests())
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
