"""What a YAML parser's complaint means to the person who wrote the file: the line to change, and how.

A parser notices a mistake where it can go no further, often a line or more below it, and names a token that it missed.
"""

import re
from typing import Any

_KEY_AND_VALUE = re.compile(r"\s*(?:- )?\s*([A-Za-z_]\w*)(?:(?: *= *| +)(\S.*))?$")  # without a colon between them
_GLUED = re.compile(r"\s*(?:- )?\s*([A-Za-z_]\w*):(?=\S)(.*)$")
_CLOSES = {"[": "]", "{": "}"}
LONGEST_SHOWN = 60  # characters of a line


def explained(error: Any, text: str) -> tuple[int, str]:
    """Return the line number, from 1, and what is wrong there; `error` is a yaml.MarkedYAMLError of `text`."""
    lines = text.split("\n")
    at = int(error.problem_mark.line)
    for rule in (_tab, _not_closed, _key, _value_above, _reserved, _indentation):
        found = rule(error, lines, at)
        if found is not None:
            return found[0] + 1, found[1]
    return at + 1, str(error.problem)


def _tab(error: Any, lines: list[str], at: int) -> tuple[int, str] | None:
    line = _line(lines, at)
    is_met = "cannot start any token" in error.problem or "tab character" in error.problem
    if not is_met or "\t" not in line[: int(error.problem_mark.column) + 1]:
        return None
    return at, f"a tab before {_shown(line)}; YAML is indented with spaces: replace the tab by spaces"


def _not_closed(error: Any, lines: list[str], at: int) -> tuple[int, str] | None:
    """Recognise a bracket, brace or quote that is open at the end of what was read."""
    if error.context_mark is None:
        return None
    first, column = int(error.context_mark.line), int(error.context_mark.column)
    opening = _line(lines, first)[column : column + 1]
    if error.context == "while scanning a quoted scalar":
        return first, f"the {opening} of {_shown(_line(lines, first))} is not closed; add another {opening} at its end"
    if opening not in _CLOSES or "did not find expected ','" not in error.problem or at == first:
        return None
    return first, f"the {opening} of {_shown(_line(lines, first))} is not closed; add {_CLOSES[opening]} where it ends"


def _key(error: Any, lines: list[str], at: int) -> tuple[int, str] | None:
    """Recognise a line that should be a key and has no colon, or no space behind it."""
    if "could not find expected ':'" not in error.problem or error.context_mark is None:
        return None
    return _without_colon(lines, int(error.context_mark.line))


def _without_colon(lines: list[str], at: int) -> tuple[int, str] | None:
    line = _line(lines, at)
    if match := _GLUED.match(line):
        return at, f"{_shown(line)} has no space behind its colon; write {match[1]}: {match[2].strip()}"
    if match := _KEY_AND_VALUE.match(line):
        wanted = f"{match[1]}: {match[2]}" if match[2] else f"{match[1]}:"
        return at, f"{_shown(line)} has no colon; write {wanted}"
    return None


def _value_above(error: Any, lines: list[str], at: int) -> tuple[int, str] | None:
    """Recognise a key where none may stand: behind a line without a colon, too deep, or a second one in a line."""
    if "mapping values are not allowed" not in error.problem:
        return None
    above = next((each for each in range(at - 1, -1, -1) if _line(lines, each).strip()), None)
    if above is not None and (found := _without_colon(lines, above)):
        return found
    line = _line(lines, at)
    before = line[: int(error.problem_mark.column)]
    if ": " in before.strip():
        return at, f"a second colon in {_shown(line)}; write one key a line, or put the value into quotes"
    if above is not None and _indent(line) > _indent(_line(lines, above)):
        return at, (
            f"{_shown(line)} is indented below {_shown(_line(lines, above))}, which has a value already; "
            f"indent it by {_indent(_line(lines, above))} spaces, like the line above"
        )
    return None


def _reserved(error: Any, lines: list[str], at: int) -> tuple[int, str] | None:
    if "cannot start any token" not in error.problem:
        return None
    column = int(error.problem_mark.column)
    value = _line(lines, at)[column:].split(" #")[0].strip()
    return at, f"{value[:1]} cannot begin a value; put it into quotes: {value!r}"


def _indentation(error: Any, lines: list[str], at: int) -> tuple[int, str] | None:
    """Recognise a line whose indentation fits none above it."""
    line = _line(lines, at)
    if "expected key" not in error.problem and "expected '-'" not in error.problem:
        return None
    if int(error.problem_mark.column) != _indent(line):
        return None
    if "expected '-'" in error.problem:
        return at, f"{_shown(line)} stands among entries of a list; begin it with '- ', or indent it otherwise"
    return at, f"the indentation of {_shown(line)}, {_indent(line)} spaces, is that of no line above it"


def _line(lines: list[str], at: int) -> str:
    return lines[at].rstrip() if 0 <= at < len(lines) else ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shown(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")
