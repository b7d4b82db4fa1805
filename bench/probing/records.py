"""Trials of a long bench, kept in a file: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def trials(
    path: Path | None, options: dict[str, Any], count: int, limit: float, trial: Callable[[int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run trials up to `count` of them, or until `limit` s have passed; return all, also those of earlier runs.

    With a path, each is appended there at once. SystemExit: the file's trials were run with other options.
    """
    begun = time.perf_counter()
    found = _earlier(path, options)
    while len(found) < count and time.perf_counter() - begun < limit:
        at = time.perf_counter()
        done = trial(len(found))
        found.append({**done, "wall_s": round(time.perf_counter() - at, 2)})
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps(found[-1]) + "\n")
    return found[:count]


def _earlier(path: Path | None, options: dict[str, Any]) -> list[dict[str, Any]]:
    if path is None:
        return []
    if not path.exists():
        path.write_text(json.dumps(options) + "\n")
    first, *lines = path.read_text().splitlines()
    if json.loads(first) != options:
        raise SystemExit(f"{path}: its trials were run with {first}")
    return [json.loads(line) for line in lines]
