"""`mrc clause`: print rules of the specification with their source, their code and their tests."""

from typing import Annotated, Any

import typer

from openmrc.conform.catalogue import RegisteredClause, clauses_of, marked_tests, shipped_tests
from openmrc.errors import UsageError
from openmrc.programs.outcome import Json, give


def clause(
    which: Annotated[
        list[str],
        typer.Argument(
            metavar="SECTION", help="Section, such as 7.5.2, id, such as sack-bitmap, or test, such as 7.5.2/1."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Print the rules of a section with their source, the code that implements them and the tests that show them.

    The text of the specification was not read: rules are what public sources say of it, in our own words.
    """
    found = {each.id: each for name in which for each in clauses_of(name)}
    if not found:
        raise UsageError(f"clause: no rule of section, id or test {', '.join(which)}; docs/conformance.md lists them")
    marks = marked_tests()
    records = [_record(each, marks.get(each.id, [])) for each in found.values()]
    give({"clauses": records}, as_json, "\n\n".join(map(_text, records)))


def _record(each: RegisteredClause, marked: list[str]) -> dict[str, Any]:
    return {
        "id": each.id,
        "section": each.section,
        "rule": each.rule,
        "status": each.status,
        "reason": each.reason,
        "code": [f"openmrc.{name}" for name in each.code],
        "tests": sorted({*each.tests, *marked}),
        "device_tests": [
            f"{test.id} ({test.level.value}, {test.part.value})" for test in shipped_tests() if test.clause == each.id
        ],
    }


def _text(record: dict[str, Any]) -> str:
    lines = [f"{record['section']}  {record['id']}", f"    {record['rule']}"]
    ours = record["status"] == "ours"
    lines.append(f"    {record['status']}" + (f": {record['reason']}" if record["reason"] else ""))
    if ours:
        lines[-1] += " A device that does otherwise is reported, not failed."
    titles = {"code": "code", "tests": "tests", "device_tests": "mrc conform"}
    for key, title in titles.items():
        lines += [f"    {title if not index else '':<12} {name}" for index, name in enumerate(record[key])]
    return "\n".join(lines)
