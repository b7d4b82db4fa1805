"""A page that shows which devices do what: a row a clause, a column a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from openmrc.conform.catalogue import clauses

_WORST_FIRST = ("fail", "inconclusive", "unsupported", "info", "pass")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: left; vertical-align: top; }
.fail { background: #d3333340; font-weight: 600; } .pass { background: #2a9d4a30; }
.info { background: #4a7fd030; } .unsupported, .inconclusive { background: #8883; }
details, small { font-size: .85em; font-weight: normal; } code { font-size: .9em; }
"""


def matrix(runs: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Return an HTML page of runs, each with its name and its record (see `records.report_record`)."""
    by_clause = [_by_clause(record) for _, record in runs]
    known = [name for name in clauses() if any(name in each for each in by_clause)]
    head = "".join(_head(name, record) for name, record in runs)
    rows = "\n".join(_row(name, [each.get(name, []) for each in by_clause]) for name in known)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>MRC conformance</title><style>{_STYLE}</style></head><body>
<h1>MRC conformance</h1>
<p>A row a clause, a column a run of <code>mrc conform</code>: a requester and a responder. A cell shows the worst
verdict of its tests. The text of the specification was not read: clauses are what public sources say of it, in our
words. Where they are silent, the verdict is info: what was seen is reported and judged by nobody.</p>
<table><thead><tr><th>clause</th>{head}</tr></thead><tbody>
{rows}
</tbody></table></body></html>
"""


def _head(name: str, record: dict[str, Any]) -> str:
    """Return the head of a column: who wrote to whom, and how many tests came to what."""
    pair = [f"{part} {record[part]}" for part in ("requester", "responder") if record.get(part)]
    counts = Counter(test["verdict"] for test in record["tests"])
    summed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _WORST_FIRST if counts[verdict])
    return f"<th>{escape(name)}<br><small>{escape(' → '.join(pair))}<br>{summed}</small></th>"


def _by_clause(record: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for test in record["tests"]:
        found.setdefault(test["clause"], []).append(test)
    return found


def _row(name: str, columns: list[list[dict[str, Any]]]) -> str:
    clause = clauses()[name]
    cells = "".join(_cell(tests) for tests in columns)
    return (
        f"<tr><td><b>{escape(clause.section)}</b> <code>{escape(name)}</code><br>{escape(clause.rule)}</td>{cells}</tr>"
    )


def _cell(tests: list[dict[str, Any]]) -> str:
    if not tests:
        return "<td>not run</td>"
    worst = next(verdict for verdict in _WORST_FIRST if any(test["verdict"] == verdict for test in tests))
    lines = "".join(f"<li>{escape(_line(test))}</li>" for test in tests)
    count = f"{len(tests)} test{'s' if len(tests) > 1 else ''}"
    return f'<td class="{worst}">{worst}<details><summary>{count}</summary><ul>{lines}</ul></details></td>'


def _line(test: dict[str, Any]) -> str:
    parts = [test["id"], test["verdict"]]
    if "came" in test:
        parts.append(f"expected {test['expected']}, came: {test['came']}")
    if test.get("observed"):
        parts.append(", ".join(f"{name} = {value}" for name, value in test["observed"].items()))
    if test.get("note"):
        parts.append(test["note"])
    return "; ".join(parts)
