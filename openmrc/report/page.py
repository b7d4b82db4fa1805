"""A self-contained HTML page: style inline, charts as SVG, no external resources."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

_STYLE = "\n" + Path(__file__).with_name("page.css").read_text("utf-8")


def page(title: str, body: Iterable[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def tile(label: str, value: str, note: str = "", mood: str = "") -> str:
    small = f"<small>{escape(note)}</small>" if note else ""
    return f'<div class="tile"><span>{escape(label)}</span><b class="{mood}">{escape(value)}</b>{small}</div>'


def card(title: str, inside: str, note: str = "") -> str:
    terms = f"<p>{escape(note)}</p>" if note else ""
    return f'<div class="card"><h3>{escape(title)}</h3>{inside}{terms}</div>'


def rows(header: Sequence[str], body: Iterable[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """Return a table; columns in `numeric` are aligned to the right."""

    def cells(values: Sequence[str], kind: str) -> str:
        return "".join(
            f"<{kind}{' class=n' if at in numeric else ''}>{escape(value)}</{kind}>" for at, value in enumerate(values)
        )

    lines = "".join(f"<tr>{cells(values, 'td')}</tr>" for values in body)
    return f'<div class="scroll"><table><tr>{cells(header, "th")}</tr>{lines}</table></div>'


def folded(title: str, text: str) -> str:
    """Return long text, collapsed until it is opened."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def section(title: str, inside: str, note: str = "") -> str:
    """Return a part of the page that folds; a link to it opens it."""
    small = f"<small>{escape(note)}</small>" if note else ""
    return (
        f'<details class="section"><summary><h2>{escape(title)}</h2>{small}</summary>'
        f'<a class="place" id="{place_of(title)}"></a>{inside}</details>'
    )


def place_of(title: str) -> str:
    """Return the name of a section in links."""
    return "-".join(title.lower().split())


def contents(titles: Iterable[str]) -> str:
    """Return links to sections; they stay at the top of the window."""
    links = (f'<a href="#{place_of(title)}">{escape(title)}</a>' for title in titles)
    return f"<nav>{''.join(links)}</nav>"
