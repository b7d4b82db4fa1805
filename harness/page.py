"""Put what a bench printed between the marks of a page, so that no figure in the docs is typed by hand."""

from __future__ import annotations

from pathlib import Path


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- end of name -->`; both must be there once."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    whole = page.read_text()
    if whole.count(begin) != 1 or whole.count(end) != 1 or whole.index(end) < whole.index(begin):
        raise SystemExit(f"{page}: wants one {begin!r} and after it one {end!r} to write between")
    before, rest = whole.split(begin)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")
