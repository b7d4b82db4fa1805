"""Scenarios, fabrics and EV profiles that ship with the package, found by name where a file of that name is missing.

`demo`, `step-under-flaps`, `fabrics/gpus-1024.yaml` and `scenarios/fabrics/gpus-1024.yaml` all name shipped files.
"""

import difflib
from pathlib import Path

from openmrc.errors import ConfigError

SCENARIOS = Path(__file__).parents[1] / "scenarios"
DEMO = SCENARIOS / "demo.yaml"


def find(path: str | Path) -> Path:
    """Return the path of an existing file, or of the shipped one of this name; ConfigError suggests similar names."""
    path = Path(path)
    if path.is_absolute() or (path.exists() and not path.is_dir()):
        return path
    parts = path.parts[1:] if path.parts[:1] == ("scenarios",) else path.parts
    if not parts or ".." in parts:
        return path
    name = Path(*parts)
    for candidate in (SCENARIOS / name, SCENARIOS / f"{name}.yaml", SCENARIOS / "fabrics" / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; expected a file")
    raise ConfigError(f"{path}: cannot be read: no such file, nor a shipped one{_suggestion(name)}")


def names() -> list[str]:
    """Return the names of all shipped files, without `.yaml`."""
    return sorted(path.relative_to(SCENARIOS).with_suffix("").as_posix() for path in SCENARIOS.rglob("*.yaml"))


def _suggestion(name: Path) -> str:
    """Return a question that names the most similar file beside this one, or shipped."""
    known = {path.with_suffix("").as_posix(): path.as_posix() for path in name.parent.glob("*.yaml")}
    for shipped in names():
        known |= {shipped: shipped, shipped.rpartition("/")[2]: shipped}
    close = difflib.get_close_matches(name.with_suffix("").as_posix(), known, n=1, cutoff=0.7)
    return f"; did you mean {known[close[0]]}?" if close else ""
