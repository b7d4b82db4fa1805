"""Makes docs/conformance.md from clauses.toml and from the marks that tests carry.

python spec/conformance.py [--check]
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
CLAUSES = ROOT / "spec" / "clauses.toml"
PAGE = ROOT / "docs" / "conformance.md"
STATUSES = ("done", "partly", "left out", "ours")


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


def read_clauses() -> list[Clause]:
    """Return the clauses in the order of the file."""
    rows = tomllib.loads(CLAUSES.read_text(encoding="utf-8"))["clause"]
    return [
        Clause(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        for row in rows
    ]


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
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def page(clauses: list[Clause], marks: dict[str, list[str]]) -> str:
    """Return the whole page."""
    ours = [clause for clause in clauses if clause.status == "ours"]
    counts = ", ".join(f"{sum(c.status == status for c in clauses)} {status}" for status in STATUSES)
    lines = [
        "# Conformance",
        "",
        "What OCP MRC 1.0 asks for, as far as public sources tell, rule by rule in our own words: where it stands",
        "in `openmrc` and which tests show it. Sections are those that readers of the specification cite. Made from",
        "`spec/clauses.toml` by `python spec/conformance.py`; a test refuses a page that is not current, a rule",
        "without a test, and a reference to code that does not exist.",
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
    lines += [
        "",
        "## Defaults of ours",
        "",
        "Where public sources are silent or disagree, this is what we chose and why.",
    ]
    lines += ["Times, sizes and counts among these are fields of `openmrc.engine.params.Settings`.", ""]
    lines += ["| what | section | why it is ours |", "|---|---|---|"]
    lines += [f"| {clause.rule} | {clause.section} | {clause.reason} |" for clause in ours]
    return "\n".join(lines) + "\n"


def _row(clause: Clause, marks: dict[str, list[str]]) -> str:
    where = ", ".join(f"`{name}`" for name in clause.code)
    by_file: dict[str, int] = defaultdict(int)
    for test in shown_by(clause, marks):
        by_file[test.split("::")[0]] += 1
    shown = ", ".join(f"[{Path(path).stem}](../{path}) {count}" for path, count in sorted(by_file.items()))
    summary = clause.rule if clause.status in ("done", "ours") else f"{clause.rule} *{clause.reason}*"
    return f"| {summary} | {clause.section} | {clause.status} | {where} | {shown} |"


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
