"""Simulate and plan from Python: `openmrc.simulate`, `openmrc.sweep`, `openmrc.plan` and `openmrc.job`.

Results come as polars DataFrames (`pip install polars`); `.to_pandas()` of each gives a pandas one where pandas is
installed. Nothing of this is imported by `import openmrc`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from openmrc.base.amounts import gbps_of
from openmrc.base.shipped import DEMO
from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.parts import Parts, load_parts
from openmrc.planner.compare import Wish, compared, rails_of, ratios
from openmrc.planner.comparison import JobQuestion
from openmrc.planner.design import Design
from openmrc.planner.outcome import outcome, sentence
from openmrc.planner.policy import Policy
from openmrc.planner.tasks import RUNNERS
from openmrc.report import folder, perfetto
from openmrc.report.month import month_page
from openmrc.report.simulation import first_screen, report
from openmrc.sim import sweep_runs
from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.scenario.description import Scenario, completed, load
from openmrc.sim.simulate import Status
from openmrc.sim.simulate import simulate as run
from openmrc.sim.sweep import Sweep, flat, points_of
from openmrc.units import PS_PER_US

if TYPE_CHECKING:
    from polars import DataFrame

_FRAME = "width:100%; height:700px; border:0"  # of the report in a notebook
AnyScenario = str | Path | Mapping[str, Any] | Scenario


class Simulation:
    """A run that has ended: its summary, and everything it recorded as DataFrames."""

    def __init__(self, run: SimulationRun, scenario: Scenario) -> None:
        """Hold a run; made by `simulate`."""
        self.run = run
        self.scenario = scenario

    def __repr__(self) -> str:
        """Return name, transport and how many flows finished."""
        found = self.summary
        return f"<Simulation {found['name']!r}: {found['transport']}, {found['finished']} of {found['flows']} flows>"

    def _repr_html_(self) -> str:
        """Return the report's first screen, as a notebook shows it: in a frame, so that neither's styles meet."""
        screen = escape(first_screen(self.run, self.summary))
        return f'<iframe srcdoc="{screen}" title="{escape(self.run.name)}" style="{_FRAME}"></iframe>'

    @property
    def is_complete(self) -> bool:
        """Tell whether every flow has finished."""
        return self.run.is_complete

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return what `mrc sim run --json` prints; docs/simulator/results.md explains the keys."""
        return summary(self.run)

    @cached_property
    def flows(self) -> DataFrame:
        """Return a row a flow: workload, source and destination NIC, bytes, start, finish and completion time (us)."""
        return _frame(folder.flow_columns(self.run))

    @cached_property
    def samples(self) -> DataFrame:
        """Return a row per moment (`at_us`), plane and kind of link: counters so far, and queues."""
        return _frame(folder.sample_columns(self.run))

    @cached_property
    def paths(self) -> DataFrame:
        """Return a row a moment: what the transport counted of its paths so far. Empty for datagrams."""
        return _frame(folder.path_columns(self.run))

    @cached_property
    def windows(self) -> DataFrame:
        """Return a row per moment and watched connection: window or rate, bytes in flight."""
        return _frame(folder.window_columns(self.run) if self.run.samples.windows else {})

    @cached_property
    def links(self) -> DataFrame:
        """Return a row a directed link: its ends, plane, tier, and what it counted over the whole run."""
        topology = self.run.topology
        ends = {
            name: [topology.name(node) for node in column.tolist()]
            for name, column in (("source", topology.link_source), ("destination", topology.link_destination))
        }
        about = {"plane": topology.link_plane, "tier": topology.link_tier, "gbps": topology.link_rate / 1e9}
        counted = {name: values for name, values in self.run.results.links.items() if name != "peak"}
        return _frame({**ends, **about, **counted, "longest_queue_us": self.run.results.links["peak"] / PS_PER_US})

    @cached_property
    def steps(self) -> DataFrame:
        """Return a row a training step that finished: its number and length (us). Empty without training steps."""
        each = self.summary.get("step_us", {}).get("each", [])
        return _frame({"step": np.arange(1, len(each) + 1), "took_us": np.array(each, np.float64)})

    @cached_property
    def faults(self) -> DataFrame:
        """Return a row a fault that struck: when (us) and what."""
        events = self.run.events
        return _frame({"at_us": [event.at / PS_PER_US for event in events], "what": [event.text for event in events]})

    def write(self, to: str | Path) -> list[str]:
        """Write the folder of `mrc sim run`: summary, manifest, tables, report; return what could not be, in words."""
        return folder.write(self.run, self.scenario, self.summary, Path(to))

    def write_report(self, to: str | Path) -> None:
        """Write the HTML report alone: one file."""
        manifest = folder.manifest(self.scenario, self.run.threads)
        Path(to).write_text(report(self.run, self.summary, manifest), encoding="utf-8")

    def write_timeline(self, to: str | Path) -> list[str]:
        """Write a timeline for ui.perfetto.dev; return what it leaves out, in words."""
        return perfetto.write(self.run, Path(to))


def simulate(
    scenario: AnyScenario,
    *,
    seed: int | None = None,
    threads: int = 1,
    progress: Callable[[Status], None] | None = None,
) -> Simulation:
    """Run a scenario; the same seed gives the same result for any number of threads.

    Args:
        scenario: the path of a YAML file, "demo", a mapping with the keys of such a file, or a `Scenario`. Files that a
            mapping names are looked for from the current folder; its `fabric` may be a `Fabric`, as `plan` makes one.
        seed: instead of the scenario's; 0 to 2**32 - 1.
        threads: threads to simulate with, 1 or more.
        progress: called several times a second with where the run stands.

    Raises:
        ConfigError: the scenario is wrong; the text names the field or the line, the value, and what is allowed.

    """
    wanted = _scenario(scenario)
    if seed is not None:
        wanted = msgspec.structs.replace(wanted, seed=seed)
    return Simulation(run(wanted, threads, progress), wanted)


def sweep(
    scenario: AnyScenario,
    vary: Mapping[str, Sequence[Any]] | None = None,
    *,
    together: Sequence[Mapping[str, Sequence[Any]]] = (),
    folder: str | Path | None = None,
    processes: int | None = None,
    on: str = "processes",
) -> DataFrame:
    """Run a scenario for every combination of some fields; return one row a run.

    Columns are the varied fields by their dotted paths, `error` (why a point was refused, else null), and every number
    of the summary by its dotted path, such as `fct_us.p99`.

    Args:
        scenario: as for `simulate`.
        vary: dotted paths into the scenario with the values to try, such as {"transport.name": ["mrc", "uet"]}.
        together: mappings of the same kind; fields of one mapping take their n-th values together.
        folder: where results are kept, so that the same call again runs only what is missing; None: nowhere.
        processes: runs at a time, all cores unless given; 1 runs them in this process.
        on: "processes" of this machine, or "ray".

    Raises:
        ConfigError: a point cannot be; all are checked before any is run.

    """
    wanted = Sweep(
        scenario="scenario",
        vary={name: list(values) for name, values in (vary or {}).items()},
        together=tuple({name: list(values) for name, values in group.items()} for group in together),
    )
    points = points_of(wanted, _scenario(scenario), Path("sweep"))
    count = processes or os.cpu_count() or 1
    where = "inline" if on == "processes" and count == 1 else on
    with tempfile.TemporaryDirectory() as nowhere:
        kept = Path(folder) if folder is not None else Path(nowhere)
        results = sweep_runs.run(points, kept, where, count, lambda done, of, shares: None)
    return _frame([flat(point) for point in results])


class Comparison:
    """Designs of a fabric side by side; the multi-plane design is the first."""

    def __init__(self, designs: Sequence[Design], parts: Parts) -> None:
        """Hold designs; made by `plan`."""
        self._designs = list(designs)
        self._parts = parts

    def __repr__(self) -> str:
        """Return the names of the designs."""
        return f"<Comparison of {', '.join(each.name for each in self._designs)}>"

    @cached_property
    def designs(self) -> DataFrame:
        """Return a row a design: switches by tier, links, optics, paths, power (W), cost, losses by failures (%)."""
        return _frame([_flat(each.as_dict(self._parts)) for each in self._designs])

    @cached_property
    def ratios(self) -> dict[str, Any]:
        """Return the multi-plane design's switches, optics and the like over those of the others."""
        return dict(ratios(self._designs))

    def fabric(self, design: str | None = None, nics_per_host: int = 1) -> Fabric:
        """Return a design, the first unless named, as a fabric that `simulate` takes.

        Raises:
            ConfigError: there is no design of this name; the text lists those there are.

        """
        for each in self._designs:
            if design in (None, each.name):
                return each.fabric(f"gpus-{each.nics}", nics_per_host)
        raise ConfigError(f"design {design!r} is not among {', '.join(each.name for each in self._designs)}")


def plan(
    gpus: int,
    nic: str = "800G",
    planes: int = 8,
    switch: str = "51.2T",
    *,
    rails: int | None = None,
    oversubscription: float = 1.0,
    parts: str | Path | None = None,
) -> Comparison:
    """Size a multi-plane fabric and the single-plane ones it is compared with, as `mrc plan` does.

    Args:
        gpus: NICs to connect, one a GPU; 1 or more.
        nic: rate of a NIC, such as "800G".
        planes: planes; a NIC has one port in each.
        switch: capacity of a switch, such as "51.2T".
        rails: NICs a machine, for the rail-optimised design; 8, or fewer if they divide, unless given.
        oversubscription: capacity down over capacity up at T0, at most; 1 or more.
        parts: a file of switches and optics instead of the built-in one.

    Raises:
        ConfigError: no such fabric can be built, or a rate is not one.

    """
    known = load_parts(Path(parts) if parts is not None else None)
    wish = Wish(gpus, gbps_of(nic), max_oversubscription=oversubscription)
    model = known.switch(gbps_of(switch) / 1000)
    return Comparison(compared(wish, planes, model, known, rails_of(gpus, rails), oversubscription), known)


class JobMonth:
    """What a training job loses on each network; `plan job` in Python."""

    def __init__(self, outcome: Mapping[str, Any]) -> None:
        """Hold an outcome; made by `job`."""
        self.outcome = outcome

    def __repr__(self) -> str:
        """Return the answer in words."""
        return f"<JobMonth: {sentence(self.outcome)}>"

    @cached_property
    def networks(self) -> DataFrame:
        """Return a row a network: goodput, what it lost to what (percent), stops, GPU-hours, cost."""
        rows = [{name: value for name, value in each.items() if name != "causes"} for each in self.outcome["networks"]]
        for row in rows:
            row["goodput_percent"] = {n: v for n, v in row["goodput_percent"].items() if n != "each"}
        return _frame([_flat(row) for row in rows])

    @cached_property
    def causes(self) -> DataFrame:
        """Return a row per network and kind of failure: how often, stops, what it costs (percent)."""
        return _frame(
            [{"network": each["network"], **row} for each in self.outcome["networks"] for row in each["causes"]]
        )

    @cached_property
    def jobs(self) -> DataFrame:
        """Return a row per network and simulated job: its goodput (percent)."""
        return _frame(
            [
                {"network": each["network"], "job": number, "goodput_percent": good}
                for each in self.outcome["networks"]
                for number, good in enumerate(each["goodput_percent"]["each"])
            ]
        )

    def write_report(self, to: str | Path) -> None:
        """Write the HTML page: one file."""
        Path(to).write_text(month_page(dict(self.outcome)), encoding="utf-8")


def job(
    gpus: int = 100_000,
    *,
    model: str = "dense",
    networks: Sequence[str] = ("mrc", "roce", "roce_adaptive", "roce_dual", "uet"),
    days: float = 30,
    jobs: int = 100,
    seed: int = 1,
    threads: int = 1,
    policy: Policy | None = None,
    parts: str | Path | None = None,
    deep: bool = False,
    on: str = "threads",
    **fabric: Any,
) -> JobMonth:
    """Simulate a training job of many days on several networks, as `mrc plan job` does.

    Args:
        gpus: NICs of the job, one a GPU.
        model: "dense" or "moe", what the job exchanges.
        networks: the one of interest first.
        days: length of the job.
        jobs: how many to simulate.
        seed: the same seed gives the same numbers for any number of threads.
        threads: threads to simulate with.
        policy: what the operator decides; `openmrc.planner.policy.Policy` has the defaults and their sources.
        parts: a parts file instead of the built-in one.
        deep: add break-even values, sensitivity and the best policies to `outcome`; takes minutes.
        on: "threads" of this machine, or "ray".
        fabric: `nic_gbps`, `responses` (a table for NICs of that rate), `planes`, `switch_tbps`, `nics_per_host`,
            `infant`.

    Raises:
        ConfigError: a value is out of range, or no such fabric can be built.

    """
    if on not in RUNNERS:
        raise ConfigError(f"on = {on!r}; expected {' or '.join(RUNNERS)}")
    known = load_parts(Path(parts) if parts is not None else None)
    asked = JobQuestion(
        gpus=gpus, model=model, days=days, jobs=jobs, seed=seed, threads=threads, policy=policy or Policy(), **fabric
    )
    return JobMonth(outcome(asked, tuple(networks), known, deep=deep, run=RUNNERS[on]))


def _scenario(given: AnyScenario) -> Scenario:
    """Return a scenario with its fabric and files in place."""
    if isinstance(given, str) and given == "demo" and not Path(given).exists():
        return load(DEMO)
    if isinstance(given, (str, Path)):
        return load(given)
    here = Path("scenario")
    if isinstance(given, Scenario):
        return completed(given, here)
    plain = {
        name: msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        for name, value in {"name": "scenario", **given}.items()
    }
    try:
        return completed(msgspec.convert(plain, Scenario), here)
    except msgspec.ValidationError as error:
        raise ConfigError(f"scenario: {error}") from None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in tree.items():
        row |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return row


def _frame(columns: Any) -> DataFrame:
    try:
        import polars
    except ImportError:
        raise ConfigError("results as tables need polars: pip install polars") from None
    return (
        polars.DataFrame(columns, infer_schema_length=None) if isinstance(columns, list) else polars.DataFrame(columns)
    )
