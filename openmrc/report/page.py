"""A self-contained HTML page: style inline, charts as SVG, no external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
:root { --ink:#1b2430; --soft:#5b6776; --paper:#ffffff; --card:#f6f8fa; --rim:#dde3ea; --grid:#e6ebf0; --mark:#b4451f;
  --good:#1a7f45; --bad:#b42318;
  --c0:#2563a8; --c1:#d97706; --c2:#15803d; --c3:#a21caf; --c4:#7a4a21; --c5:#b91c1c; --c6:#6d5bd0; --c7:#6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6ebf1; --soft:#9aa7b5; --paper:#12171d; --card:#1a2129;
  --rim:#2c3641; --grid:#28323d; --mark:#f0a47c; --good:#5cc98a; --bad:#f58a80;
  --c0:#6aa9ec; --c1:#f2a94a; --c2:#5cc98a; --c3:#d987ea; --c4:#d2a679; --c5:#f58a80; --c6:#a99bff; --c7:#aab4bf; } }
* { box-sizing:border-box } body { margin:0; background:var(--paper); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif }
main { max-width:1180px; margin:0 auto; padding:28px 24px 60px } h1 { font-size:25px; margin:0 0 2px }
h2 { font-size:17px; margin:34px 0 10px }
h3 { font-size:15px; margin:22px 0 2px; font-weight:600 } p.lead { color:var(--soft); margin:0 0 18px; max-width:80ch }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,200px),1fr)); gap:10px;
  margin:12px 0 }
.tile,.card { background:var(--card); border:1px solid var(--rim); border-radius:8px; padding:12px 14px; min-width:0 }
.tile b { display:block; font-size:19px; font-weight:600; font-variant-numeric:tabular-nums }
.tile span { color:var(--soft); font-size:13px } .tile small { color:var(--soft) }
.good { color:var(--good) } .bad { color:var(--bad) }
.charts { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr)); gap:16px }
.card h3 { font-size:14px; margin:0 0 6px; font-weight:600 }
.card p { color:var(--soft); font-size:13px; margin:6px 0 0 }
svg { width:100%; height:auto; display:block } svg text { fill:var(--soft); font-size:12px; font-family:inherit }
svg.bars { max-width:720px } svg .grid { stroke:var(--grid) } svg .axis { stroke:var(--soft) }
svg .curve { fill:none; stroke-width:1.7; stroke-opacity:.85 }
svg .mark line { stroke:var(--mark); stroke-dasharray:3 3 } svg .mark text { fill:var(--mark); font-size:10px }
svg .band { fill:var(--c0); fill-opacity:.22 } svg .heat { fill:var(--c0) }
.legend i.band { background:var(--c0); opacity:.3; height:10px } .legend i.heat { background:var(--c0); height:10px }
.legend { display:flex; flex-wrap:wrap; gap:2px 14px; font-size:12.5px; color:var(--soft); margin-top:4px }
.legend i { display:inline-block; width:12px; height:3px; margin-right:5px; vertical-align:middle }
.scroll { overflow-x:auto } table { border-collapse:collapse; font-size:13.5px; min-width:50% }
th,td { text-align:left; padding:5px 14px 5px 0; border-bottom:1px solid var(--rim); vertical-align:top }
td.n,th.n { text-align:right; font-variant-numeric:tabular-nums } th { color:var(--soft); font-weight:500 }
nav { position:sticky; top:0; z-index:1; background:var(--paper); border-bottom:1px solid var(--rim); padding:8px 0;
  display:flex; flex-wrap:wrap; gap:2px 16px; font-size:13.5px } nav a { color:var(--c0); text-decoration:none }
details.section { border-top:1px solid var(--rim); margin:0; padding:4px 0 8px }
details.section>summary h2 { margin:8px 0; display:inline-block }
details.section>summary small { color:var(--soft); margin-left:10px }
details.section a.place { display:block; scroll-margin-top:96px } .glance { margin-bottom:22px }
.glance .card svg { max-height:250px }
svg .shade { fill:var(--bad); fill-opacity:.1 } @media print { nav { display:none } }
details { margin-top:12px } summary { cursor:pointer } pre { background:var(--card); border:1px solid var(--rim);
  border-radius:8px; padding:12px; overflow-x:auto; font-size:12.5px }
div.upright { display:none; color:var(--soft); font-size:12.5px }
@media (max-width:640px) { main { padding:18px 12px 40px } h1 { font-size:21px }
  svg text { font-size:20px } svg .mark text { font-size:17px } svg text.odd,svg text.upright { display:none }
  div.upright { display:block } .tiles { grid-template-columns:1fr 1fr } .tile b { font-size:17px }
  .card,.tile { padding:10px } th,td { padding-right:10px } table { font-size:13px } svg .curve { stroke-width:2.6 } }
footer { color:var(--soft); font-size:13px; margin-top:40px }
"""


def page(title: str, body: Iterable[str]) -> str:
    """Return an HTML document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def tile(label: str, value: str, note: str = "", mood: str = "") -> str:
    """Return a number with its name."""
    small = f"<small>{escape(note)}</small>" if note else ""
    return f'<div class="tile"><span>{escape(label)}</span><b class="{mood}">{escape(value)}</b>{small}</div>'


def card(title: str, inside: str, note: str = "") -> str:
    """Return a framed chart with its title and a note."""
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


def section(title: str, inside: str, note: str = "", is_open: bool = False) -> str:
    """Return a part of the page that folds; a link to it opens it."""
    small = f"<small>{escape(note)}</small>" if note else ""
    return (
        f'<details class="section"{" open" if is_open else ""}><summary><h2>{escape(title)}</h2>{small}</summary>'
        f'<a class="place" id="{place_of(title)}"></a>{inside}</details>'
    )


def place_of(title: str) -> str:
    """Return the name of a section in links."""
    return "-".join(title.lower().split())


def contents(titles: Iterable[str]) -> str:
    """Return links to sections; they stay at the top of the window."""
    links = (f'<a href="#{place_of(title)}">{escape(title)}</a>' for title in titles)
    return f"<nav>{''.join(links)}</nav>"
