"""The table of timers says what the code does: every value is that of its constant, and no constant is missing."""

import ast
import importlib
import re
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

import openmrc
from openmrc.programs.endpoint.timer_table import TimerRow, groups, in_words

PACKAGE = Path(openmrc.__file__).parent
ROWS = [row for group in groups() for row in group.timers]
OURS = [row for row in ROWS if row.constant]
SIZES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
LOOKS_LIKE_A_TIME = re.compile(
    r"(SECONDS|TIMEOUT|GRACE|STALL|PATIENCE|INTERVAL|LINGER|_interval_us|_interval_max_us|_S$)"
)
ROOMS = (
    "engine/lifecycle.py",
    "engine/messages.py",
    "engine/user_timeout.py",
    "engine/state/params.py",
    "live",
    "ctl",
    "telemetry",
    "train",
    "programs",
    "lab",
    "conform",
    "operations",
)
assert all((PACKAGE / room).exists() for room in ROOMS)
NOT_TIMERS = {
    "MAX_TIMEOUT": "a limit of an attribute",
    "MOST_TIMEOUT": "a limit of an attribute",
    "SILENT_TIMEOUTS": "a count",
    "TIMEOUT_UNIT_US": "a unit",
    "USER_TIMEOUT": "the number of an attribute; the value is ConnectionOptions.user_timeout",
    "USER_TIMEOUT_S": "the value of ConnectionOptions.user_timeout",
    "TIMEOUT": "in live/datapath/loop/operations the number of an attribute; elsewhere in the table",
    "LONGEST_SECONDS": "a limit of an option",
    "RETRY_SECONDS": "how often a full backlog is tried again",
    "TICK_SECONDS": "how often leases are looked at",
    "NO_TIMEOUT": "torch's way to say none",
    "_STALL_TRIES": "a count",
    "LINE_SECONDS": "output: how often a line is printed",
    "REPORT_SECONDS": "output: how often refusals are reported",
    "SAMPLE_SECONDS": "how often a timeline is sampled",
    "LEAST_INTERVAL": "output: shortest line of mrc perf",
    "_INTERVAL": "a regular expression",
    "_POLL_SECONDS": "how often a queue that drains is looked at",
    "_WAIT_SECONDS": "how often a wait lets signals in",
    "_MONTH_SECONDS": "a unit",
    "_PATIENCE_S": "simulated time",
    "_SLOW_SECONDS": "in train/recording/recorder what counts as slow; in train/execution/watchdog in the table",
    "NS_PER_S": "a unit",
    "EVERY_S": "output: between lines of progress",
    "LONG_S": "output: from here on in minutes",
    "TICK_S": "how often an agent looks at its end",
    "EXCHANGED_S": "how far apart two faults are taken for one event",
    "ORDER_KEPT_S": "how long a part that is named again has the same work order",
    "_FULL_S": "how often a port without descriptors tries again",
    "REFRESH_S": "how often new endpoints and commands are looked for",
    "WAITS_S": "output: how often it is said who is waited for",
    "ROUND_S": "how often a host sends its probes",
    "PASSED_ON_S": "how old probes may be that a report says were sent",
    "DATA_EVERY_S": "how often a path is probed like data",
    "BOOST_EVERY_S": "how often a path is that is shunned or loses such probes",
    "BOOST_S": "for how long",
    "LATE_WAIT_S": "how long a thread that waits for a processor makes its host late",
    "RENEW_S": "how often a lease in etcd is renewed",
    "LOOK_S": "how often new certificates are looked for",
    "PACE_S": "how often a lab's prober sends a slice",
    "MOST_STEP_S": "how much of a check one look of a controller counts for",
    "IDLE_STEP_S": "how often a controller that does not probe looks",
    "FRAME_SECONDS": "how often a page is given a frame",
    "_POLL_S": "how often a command looks whether it was carried out",
    "GIVE_UP_S": "how long the number of a one-way probe is kept",
    "WINDOWS_S": "how much evidence is looked at",
    "_KEPT_S": "how much evidence is kept",
    "REFINE_S": "how much evidence refines a verdict",
    "UNEVEN_S": "from when on what passes a cable is evidence",
    "SPOKEN_S": "which windows show that a host goes on speaking",
    "_PAUSE_S": "how often the addresses of a lab are looked at",
    "_PAUSED_SECONDS": "when a process did not run, from its processor time",
    "PAUSE_S": "when a host that spoke alone has to begin anew",
    "TIMEOUT_PS": "of the model in probing/trial",
    "_DISCOVERY_S": "how long a lab that starts waits for addresses to be usable",
    "ACK_TIMEOUT_UNIT_S": "a unit",
    "STALL_MS": "of the model in probing/trial",
}


@cache
def tree_of(module: str) -> ast.Module:
    path = PACKAGE.parent / (module.replace(".", "/") + ".py")
    return ast.parse(path.read_text("utf-8"))


def constant(source: str) -> Any:
    """Return the value of "module:NAME" or "module:Class.field"."""
    module, _, name = source.partition(":")
    if "pytorch" in module:  # needs torch
        (node,) = (n for n in tree_of(module).body if isinstance(n, ast.Assign) and n.targets[0].id == name)  # type: ignore[attr-defined]
        return ast.literal_eval(node.value)
    thing: Any = importlib.import_module(module)
    owner, _, field = name.partition(".")
    if field:
        owner_type = getattr(thing, owner)
        fields = getattr(owner_type, "__struct_fields__", None)
        if fields is not None:
            defaults = owner_type.__struct_defaults__
            return defaults[fields.index(field) - len(fields)]
        return owner_type.__dataclass_fields__[field].default
    return getattr(thing, name)


@pytest.mark.parametrize("row", OURS, ids=lambda row: row.name)
def test_a_row_has_the_value_of_its_constant(row: TimerRow) -> None:
    value = constant(row.constant)
    if row.unit == "t":
        seconds = 1.024e-6 * 2**value
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    else:
        seconds = value * SIZES[row.unit]
    assert row.seconds == pytest.approx(seconds, rel=1e-6)


def test_every_constant_that_is_a_time_to_wait_is_in_the_table() -> None:
    known = {re.split(r"[:.]", row.constant)[-1] for row in OURS}
    found = set()
    for room in ROOMS:
        path = PACKAGE / room
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            if file.parent == PACKAGE / "programs" / "demo":
                continue  # most of its times are of its story: how long a transfer takes, when a plane goes
            found |= {name for name in _assigned(ast.parse(file.read_text("utf-8"))) if LOOKS_LIKE_A_TIME.search(name)}
    assert len(found) > 30
    assert found - known - NOT_TIMERS.keys() == set()


def _assigned(module: ast.Module) -> set[str]:
    nodes = [*module.body, *(n for c in module.body if isinstance(c, ast.ClassDef) for n in c.body)]
    names = {t.id for n in nodes if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    return names | {n.target.id for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}


def test_names_of_timers_are_unique_and_every_row_says_what_happens() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.waits_for and row.effect for row in ROWS)


@pytest.mark.parametrize("fields", [{}, {"seconds": 1.0}, {"constant": "a:B", "seconds": 1.0, "source": "a manual"}])
def test_a_row_has_a_constant_of_ours_or_a_foreign_default_with_its_source(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match="give either `constant`"):
        msgspec.convert({"name": "x", "waits_for": "y", "effect": "z", **fields}, TimerRow)


def test_a_changed_constant_changes_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openmrc.ctl.server.IDLE_SECONDS", 61.0)
    assert next(row.seconds for row in OURS if row.name == "idle") == 61.0


def test_without_torch_constants_of_its_modules_are_read_from_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = next(row.seconds for row in OURS if row.name == "monitored barrier")
    monkeypatch.setattr("importlib.import_module", _absent)
    assert next(row.seconds for row in OURS if row.name == "monitored barrier") == before == 1.0


def _absent(name: str) -> None:
    raise ImportError(name)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "at once"), (1e-4, "100 us"), (16.777216e-3, "16.8 ms"), (20, "20 s"), (1800, "30 min"), (7200, "2 h")],
)
def test_times_have_a_unit_that_suits_them(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
    assert in_words(float("inf")) == "never"


@pytest.mark.needs("torch")
def test_defaults_of_torch_are_those_of_the_installed_one() -> None:
    from torch.distributed.constants import default_pg_timeout
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout
    from torch.distributed.launcher.api import LaunchConfig

    seconds = {row.name: row.seconds for row in ROWS}
    assert default_pg_timeout.total_seconds() == seconds["process group, others"]
    assert RendezvousTimeout().join.total_seconds() == seconds["join"]
    assert RendezvousTimeout().last_call.total_seconds() == seconds["last call"]
    assert LaunchConfig.__dataclass_fields__["monitor_interval"].default == seconds["monitor"]
    assert LaunchConfig(1, 1, 1).shutdown_timeout == seconds["shutdown"]
