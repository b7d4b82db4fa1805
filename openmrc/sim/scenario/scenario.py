"""A scenario as a person writes it: fabric, transport, workloads, faults, and what to record.

`load(path)` is the door. The JSON Schema is published as `scenario.schema.json` beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from openmrc.documents import read_text
from openmrc.errors import ConfigError
from openmrc.fabric.description import Fabric
from openmrc.fabric.fabric_file import load as load_fabric
from openmrc.fabric.shape import check
from openmrc.fabric.yaml_file import decode_placed
from openmrc.faults import Schedule
from openmrc.sim.workloads.amounts import Duration, ps_of
from openmrc.sim.workloads.families import Workload
from openmrc.sim.workloads.parameters import Parameters
from openmrc.sim.workloads.trace import Trace
from openmrc.wire.pcapng import SNAPLEN

HEADERS = 144  # bytes of a frame that hold its headers, whatever they are
SCHEMA_FILE = Path(__file__).with_name("scenario.schema.json")

LoadBalancing = Literal["oblivious", "bitmap", "reps", "mixed"]
TransportName = Literal["mrc", "uet", "roce", "roce_selective", "roce_adaptive", "datagrams"]


class _Part(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


class Matrix(Parameters, frozen=True, kw_only=True, tag="matrix"):
    """Flows from an htsim connection matrix."""

    file: str  # .cm, from the scenario's folder
    start_unit: Literal["us", "ps"] = "us"  # of `start` in the file


class Transport(_Part, frozen=True, kw_only=True):
    """Say how messages are carried."""

    name: TransportName = "mrc"
    load_balancing: LoadBalancing | None = None  # of uet; mixed unless said
    qps: Annotated[int, Meta(ge=1, le=16)] = 1  # queue pairs between two NICs
    mtu: Annotated[int, Meta(ge=256, le=9216)] = 4096  # payload bytes
    scale_up: bool = True  # messages within a scale-up domain take its network; false: the NICs, like all others
    settings: dict[str, bool | int | float | str] = {}  # any other setting of the transport, by its name


class Sampling(_Part, frozen=True, kw_only=True):
    """Say what is recorded over time."""

    every: Duration | None = None  # unless said, the run's length is cut into some 200 samples
    around_faults: Duration = "100us"  # after each fault, and half as long before it, samples are finer; 0us: never
    flows: Annotated[int, Meta(ge=0, le=256)] = 12  # connections whose windows are recorded


class Capture(_Part, frozen=True, kw_only=True):
    """Say whose packets are written to capture files; MRC only."""

    hosts: Annotated[tuple[int | str, ...], Meta(min_length=1)]  # NICs, by number or name
    limit: Annotated[int, Meta(ge=1, le=10_000_000)] = 20_000  # packets of each; later ones are counted only
    start: Duration = "0us"  # nothing is captured before
    snaplen: Annotated[int, Meta(ge=HEADERS, le=SNAPLEN)] = HEADERS  # bytes of a frame; more takes payload in, as zeros


class Report(_Part, frozen=True, kw_only=True):
    """Say what the report shows."""

    html: bool = True
    title: str = ""


class Restart(_Part, frozen=True, kw_only=True):
    """Say what a training job that stops pays; both are assumptions of the scenario."""

    checkpoint_every: Duration  # between two checkpoints
    takes: Duration  # from the stop until steps go on, at the last checkpoint


class Published(_Part, frozen=True, kw_only=True):
    """A figure that someone else has published, to stand beside the simulated one."""

    what: str
    value: float | None = None  # None: known in words or as a plot only
    unit: str = ""
    of: str = ""  # the path of the simulated figure in the summary, such as goodput_gbps.nic.mean
    within_percent: float | None = None  # that both may differ
    source: str
    words: str = ""


class Scenario(_Part, frozen=True, kw_only=True):
    """Hold everything that a scenario file says."""

    name: str
    description: str = ""
    fabric: str | Fabric  # a path from the scenario's folder (YAML or .topo), or the description itself
    transport: Transport = Transport()
    workloads: Annotated[tuple[Workload | Matrix, ...], Meta(min_length=1)]
    faults: tuple[dict[str, str | int | float | None], ...] = ()  # in the words of docs/simulator.md
    sampling: Sampling = Sampling()
    capture: Capture | None = None
    check_tables: bool = False  # compare every EV's path with the fabric's uSID tables before the run
    seed: Annotated[int, Meta(ge=0, lt=1 << 32)] = 1
    restart: Restart | None = None  # of training steps; unless said, a stop is told and not charged
    until: Duration = "10s"  # simulated; what has not finished then is reported as unfinished
    report: Report = Report()
    published: tuple[Published, ...] = ()


def load(path: str | Path) -> Scenario:
    """Read a scenario and everything it names: the fabric is in place afterwards, files are absolute."""
    path = Path(path)
    scenario, where = decode_placed(read_text(path), Scenario, str(path))
    placed = tuple(FaultText(step, f"{where(f'$.faults[{at}]')}: faults") for at, step in enumerate(scenario.faults))
    return completed(msgspec.structs.replace(scenario, faults=placed), path)


class FaultText(dict[str, Any]):
    """A fault as it was written, and where: complaints about its words and its place name file and line."""

    def __init__(self, words: Mapping[str, Any], place: str) -> None:
        super().__init__(words)
        self.place = place


def completed(scenario: Scenario, path: Path) -> Scenario:
    """Return a scenario with everything it names in place; `path` is where it was read, or would be."""
    schedule(scenario, str(path))  # wrong words are refused now, not after the fabric is built
    _refuse_no_time(scenario, path)
    return msgspec.structs.replace(
        scenario,
        fabric=_fabric(scenario, path),
        workloads=tuple(_placed(workload, path) for workload in scenario.workloads),
    )


def _refuse_no_time(scenario: Scenario, path: Path) -> None:
    """Refuse durations of 0 that would mean no run at all, or samples without end."""
    for name, duration in (("until", scenario.until), ("sampling: every", scenario.sampling.every)):
        if duration is not None and ps_of(duration) == 0:
            raise ConfigError(f"{path}: {name}: {duration!r}: expected a time above 0")


def _fabric(scenario: Scenario, path: Path) -> Fabric:
    if isinstance(scenario.fabric, Fabric):
        check(scenario.fabric, f"{path}: fabric")
        return scenario.fabric
    file = path.parent / scenario.fabric
    if not file.is_file():
        raise ConfigError(f"{path}: fabric: {file}: cannot be read: there is no such file")
    return load_fabric(file)


def _placed(workload: Workload | Matrix, path: Path) -> Workload | Matrix:
    if not isinstance(workload, (Matrix, Trace)):
        return workload
    file = path.parent / workload.file
    if not file.is_file() and not Path(f"{file}.0.et").is_file():
        raise ConfigError(f"{path}: workloads: file: {workload.file!r} does not exist beside the scenario")
    if isinstance(workload, Trace) and workload.groups:
        workload = msgspec.structs.replace(workload, groups=str(path.parent / workload.groups))
    return msgspec.structs.replace(workload, file=str(file))


def schedule(scenario: Scenario, source: str = "scenario") -> Schedule:
    """Return the faults of a scenario in order of time."""
    places = [getattr(step, "place", "") for step in scenario.faults]
    return Schedule.of([dict(step) for step in scenario.faults], f"{source}: faults", places)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file."""
    return msgspec.json.schema(Scenario)


def schema_text() -> str:
    """Return the schema as it is published."""
    return msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n"
