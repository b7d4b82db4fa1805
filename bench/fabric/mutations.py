"""Does the read-back name every damage? 1,000 random damages of exported files, one at a time.

    python bench/fabric/mutations.py [--count 1000] [--seed 1]     exit 1 when one is missed

A damage takes a file of a small fabric's export to SONiC, FRR, Cumulus, Linux or EOS and removes a statement, changes a
digit or a word of it, overwrites it with another statement, or removes several lines. `mrc fabric diff` must name the
switch and nothing else, and so must `mrc fabric verify --from`; a file that is no longer readable must be named by its
path. `proof broken` counts the damages that also cost deliveries; the others are of settings (classes, NTP ..).
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from openmrc.base.yaml_file import decode_text
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import TARGETS, write_all
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.proof.diff import Installed, compare_folder, read_folder, tables_of
from openmrc.fabric.proof.verify import verify

FABRICS = (
    "name: two-tier\nhosts: {count: 12}\nplanes:\n  - {count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}\n",
    "name: bundles\nhosts: {count: 11}\nplanes:\n  - {host_gbps: 100, t0: {down: 4, up: 6, bundle: 2}, t1: {}}\n",
    "name: mixed\nhosts: {count: 8}\nplanes:\n  - {host_gbps: 200, t0: {down: 4, up: 2, up_gbps: 400}, t1: {}}\n",
    "name: shifting\nhosts: {count: 9}\nplanes:\n  - {host_gbps: 100, t0: {down: 3, up: 2}, t1: {}}\n"
    "usid: {downlink: ua}\n",
)
OPTIONS = ExportOptions(ntp=("10.0.0.1",), management="10.91.0.0/16", frr="10.7")


def damaged(lines: list[str], chance: random.Random) -> tuple[str, list[str]]:
    """Return what was done, and the lines after it."""
    at = chance.choice([index for index, line in enumerate(lines) if is_statement(line)])
    kind = chance.choice(("remove", "digit", "word", "copy", "block"))
    if kind == "remove":
        return kind, lines[:at] + lines[at + 1 :]
    if kind == "digit" and (digits := list(re.finditer(r"\d", lines[at]))):
        place = chance.choice(digits).start()
        other = chance.choice([digit for digit in "0123456789" if digit != lines[at][place]])
        return kind, [*lines[:at], lines[at][:place] + other + lines[at][place + 1 :], *lines[at + 1 :]]
    if kind == "copy":
        source = chance.choice([index for index, line in enumerate(lines) if is_statement(line)])
        return kind, [*lines[:at], lines[source], *lines[at + 1 :]]
    if kind == "block":
        return kind, lines[:at] + lines[min(len(lines) - 1, at + chance.randint(2, 12)) :]
    words = list(re.finditer(r"[a-z]{2,}", lines[at]))
    if not words:
        return "remove", lines[:at] + lines[at + 1 :]
    word = chance.choice(words)
    return "word", [*lines[:at], lines[at][: word.start()] + "zz" + lines[at][word.end() :], *lines[at + 1 :]]


def is_statement(line: str) -> bool:
    """Tell whether a line says anything: comments, ends of blocks and the last command of NVUE do not."""
    line = line.strip()
    return (
        bool(line)
        and not line.startswith(("#", "!", "nv config", "frr version "))
        and line not in ("exit", "end", "{", "}", "},")
    )


def same(before: list[str], after: list[str]) -> bool:
    """Tell whether files say the same: neither order nor repetition of statements counts."""
    return set(filter(is_statement, before)) == set(filter(is_statement, after)) and len(before) == len(after)


def installed(plan: UsidPlan, folder: Path) -> tuple[list[Installed], bool]:
    """Return what `verify --from` reads, and whether it proves it."""
    found = list(read_folder(plan, folder, OPTIONS))
    return found, verify(plan, tables_of(plan.topology, found)).proven


def attempt(plan: UsidPlan, folder: Path, chance: random.Random) -> tuple[str, str, bool]:
    """Damage one file and restore it; return what was done, how it was missed, if it was, and whether paths broke."""
    path = chance.choice(sorted(folder.iterdir()))
    text = path.read_text()
    while True:
        kind, lines = damaged(text.split("\n"), chance)
        if not same(text.split("\n"), lines):
            break
    path.write_text("\n".join(lines))
    try:
        return f"{kind} {path.suffix}", *_judged(plan, folder, path)
    finally:
        path.write_text(text)


def _judged(plan: UsidPlan, folder: Path, path: Path) -> tuple[str, bool]:
    switch = path.name.partition(".")[0]
    try:
        differing = [each.switch for each in compare_folder(plan, folder, OPTIONS) if not each.clean]
        found, proven = installed(plan, folder)
    except ConfigError as error:
        return ("" if str(path) in str(error) else f"the error does not name {path.name}: {error}"), True
    verified = [each.difference.switch for each in found if not each.difference.clean]
    if differing != [switch] or verified != [switch]:
        return f"{path.name}: diff names {differing or 'nothing'}, verify --from {verified or 'nothing'}", not proven
    return "", not proven


def main() -> int:
    """Print a table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance, begun = random.Random(asked.seed), time.perf_counter()
    done: Counter[str] = Counter()
    missed: list[str] = []
    broke = 0
    with tempfile.TemporaryDirectory() as top:
        folders = list(exported(Path(top)))
        for number in range(asked.count):
            name, plan, folder = folders[number % len(folders)]
            what, how, breaks = attempt(plan, folder, chance)
            done[f"{name.split('/')[1]:8} {what}"] += 1
            broke += breaks
            if how:
                missed.append(f"{name}: {what}: {how}")
    for what, times in sorted(done.items()):
        print(f"{what:30} {times:5}")
    named, took = asked.count - len(missed), time.perf_counter() - begun
    print(f"damages {asked.count}, named {named}, proof broken {broke}, {took:.1f} s")
    print("\n".join(missed[:20]))
    return 1 if missed else 0


def exported(top: Path) -> list[tuple[str, UsidPlan, Path]]:
    """Export every fabric to every target that takes it."""
    folders = []
    for text in FABRICS:
        fabric = decode_text(text, Fabric, "bench")
        plan = usid_plan(build(fabric))
        for target in TARGETS:
            folder = top / f"{fabric.name}-{target}"
            try:
                list(write_all(plan, target, OPTIONS, folder))
            except ConfigError:
                continue  # a shifting downlink, which some targets do not take
            folders.append((f"{fabric.name}/{target}", plan, folder))
    return folders


if __name__ == "__main__":
    sys.exit(main())
