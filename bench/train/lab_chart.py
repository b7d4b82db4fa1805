"""The picture of `bench.train.lab`: step times over MRC and over Gloo while cables are pulled, on one scale.

sudo python -m bench.train.lab --pulls 12 --steps 720 --series bench/results/series/cable-out.json
python -m bench.train.lab_chart              # docs/images/cable-out.svg and its moving twin, from the kept series
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openmrc.report.svg import ticks

ROOT = Path(__file__).parents[2]
SERIES = ROOT / "bench" / "results" / "series" / "cable-out.json"
IMAGES = ROOT / "docs" / "images"
HELD = 3.0  # s for which a moving picture stands when it is complete
WIDTH, LEFT, RIGHT, TOP, PANEL, GAP, BOTTOM = 720, 64, 20, 60, 130, 44, 44  # px
NAMES = {"mrc": ("MRC, four planes", "#1b9e77"), "gloo": ("Gloo over TCP, on the first plane", "#d95f02")}
FIRST_PLANE = "h0<>p0-"  # how the cable that carries TCP is named
STYLE = """
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #4f5b69 } .title { font-size: 16px; fill: #1b2430;
font-weight: 600 } .name { font-size: 13px; fill: #1b2430 } .paper { fill: #fff } line { stroke: #d5dbe2 }
.out { fill: #c62828; fill-opacity: .1 } .hit { fill: #c62828; fill-opacity: .28 }
@media (prefers-color-scheme: dark) {
  text { fill: #aeb8c4 } .title, .name { fill: #e6ebf1 } .paper { fill: #12171d } line { stroke: #2c3641 }
  .out { fill: #ff7b7b; fill-opacity: .16 } .hit { fill: #ff7b7b; fill-opacity: .4 }
}
"""


def drawing(runs: dict[str, Any], *, is_moving: bool = False) -> str:
    """Return an SVG with a panel for each backend; a bar for each step, as high as it was long.

    A moving one shows the run at its own pace, again and again; a reader who wants no motion gets the whole picture.
    """
    last_pull = max(pull["up"] for run in runs.values() for pull in run["pulls"])
    length = last_pull + 1.0  # s
    most = max(max(run["ms"]) for run in runs.values()) * 1.05
    height = TOP + len(runs) * (PANEL + GAP) - GAP + BOTTOM
    parts = [
        _panel(backend, run, length, most, TOP + at * (PANEL + GAP)) for at, (backend, run) in enumerate(runs.items())
    ]
    title = "A cable is pulled every 1.5 s: how long a training step takes"
    if is_moving:
        parts += [_cover(TOP + at * (PANEL + GAP)) for at in range(len(runs))]
    style = STYLE + (_motion(length) if is_moving else "")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" role="img">'
        f'<title>{title}</title><style>{style}</style><rect class="paper" width="100%" height="100%"/>'
        f'<text class="title" x="{LEFT}" y="26">{title}</text>{"".join(parts)}{"".join(_axis(length, height))}</svg>\n'
    )


def _cover(top: float) -> str:
    """Return what hides the part of a panel that is still to come; nothing where styles do not move."""
    place = f'x="{LEFT}" y="{top - 1:g}" width="{WIDTH + RIGHT}" height="{PANEL + 2}"'
    return f'<rect class="paper cover" {place} transform="translate({WIDTH})"/>'


def _motion(length: float) -> str:
    """Return the style that draws the covers away in `length` seconds."""
    shown = 100 * length / (length + HELD)
    return (
        f"@keyframes time {{ from {{ transform: none }} {shown:.1f}%, to {{ transform: translateX({WIDTH}px) }} }}\n"
        f".cover {{ animation: time {length + HELD:g}s linear infinite }}\n"
        "@media (prefers-reduced-motion: reduce) { .cover { display: none } }\n"
    )


def _panel(backend: str, run: dict[str, Any], length: float, most: float, top: float) -> str:
    name, colour = NAMES[backend]
    base = top + PANEL
    parts = [
        f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{base - value / most * PANEL:.1f}" '
        f'y2="{base - value / most * PANEL:.1f}"/><text x="{LEFT - 8}" y="{base - value / most * PANEL + 4:.1f}" '
        f'text-anchor="end">{value:,.0f}</text>'
        for value in ticks(0, most, 4)
    ]
    parts += [_pull(pull, backend, length, top) for pull in run["pulls"]]
    for at, ms in zip(run["at"], run["ms"], strict=True):
        if at - ms / 1e3 < length:
            begin, end = _x(at - ms / 1e3, length), _x(at, length)
            parts.append(
                f'<rect x="{begin:.1f}" y="{base - ms / most * PANEL:.1f}" width="{max(end - begin, 0.8):.1f}" '
                f'height="{ms / most * PANEL:.1f}" fill="{colour}"/>'
            )
    longest = max(run["ms"])  # of all steps, also between outages
    said = f"{name}: longest of all steps {longest:,.0f} ms"
    return f'<text class="name" x="{LEFT}" y="{top - 8:g}">{said}</text>{"".join(parts)}'


def _pull(pull: dict[str, Any], backend: str, length: float, top: float) -> str:
    """Return the time in which a cable is out, darker where the backend has no other."""
    kind = "hit" if backend == "gloo" and pull["cable"].startswith(FIRST_PLANE) else "out"
    begin, end = _x(pull["down"], length), _x(pull["up"], length)
    return f'<rect class="{kind}" x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" height="{PANEL}"/>'


def _axis(length: float, height: float) -> Iterator[str]:
    for value in ticks(0, length, 10):
        yield f'<text x="{_x(value, length):.1f}" y="{height - 26}" text-anchor="middle">{value:g}</text>'
    yield (
        f'<text x="{LEFT + WIDTH / 2}" y="{height - 8}" text-anchor="middle">seconds of training; height: step time, '
        "ms; red: a cable of this host is out, dark where it is the only one TCP has</text>"
    )


def _x(at: float, length: float) -> float:
    return LEFT + min(max(at / length, 0.0), 1.0) * WIDTH


def main() -> None:
    """Draw the kept series, once standing and once moving."""
    runs = json.loads(SERIES.read_text())["runs"]
    for name, is_moving in (("cable-out.svg", False), ("cable-out-moving.svg", True)):
        (IMAGES / name).write_text(drawing(runs, is_moving=is_moving), encoding="utf-8")
        print(f"written to {(IMAGES / name).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
