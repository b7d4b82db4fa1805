"""A scenario file: fabric, transport, workloads, faults, and the data to record.

`load(path)` reads one. The JSON Schema is `schema/scenario.schema.json`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from openmrc.base.amounts import Duration, ps_of, refuse_excess
from openmrc.base.documents import read_text
from openmrc.base.faults import Schedule, time_ps
from openmrc.base.shipped import find
from openmrc.base.yaml_file import Where, decode_placed
from openmrc.errors import ConfigError, FieldError
from openmrc.fabric.model.build import load as load_fabric
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.shape import check
from openmrc.sim.scenario.matrix import StartUnit
from openmrc.sim.transports.uet.spraying.names import LoadBalancing
from openmrc.sim.workloads.families import Workload
from openmrc.sim.workloads.plan import Parameters
from openmrc.sim.workloads.trace import Trace
from openmrc.wire.pcapng import SNAPLEN

HEADERS = 144  # bytes; the longest headers of a frame

TransportName = Literal["mrc", "uet", "roce", "roce_selective", "roce_adaptive", "datagrams"]


class _ScenarioPart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    def __post_init__(self) -> None:
        refuse_excess(self)


class Matrix(Parameters, frozen=True, kw_only=True, tag="matrix"):
    """Flows from an htsim connection matrix."""

    file: str  # .cm, relative to the scenario's folder
    start_unit: StartUnit = "us"  # of `start` in the file

    def __post_init__(self) -> None:
        """Refuse what the file itself says: hosts and times."""
        super().__post_init__()
        if self.hosts is not None or self.every is not None:
            raise ValueError("hosts, every: a connection matrix names its hosts and times itself")


class Transport(_ScenarioPart, frozen=True, kw_only=True):
    """The transport and its settings."""

    name: TransportName = "mrc"
    load_balancing: LoadBalancing | None = None  # of uet; default: mixed
    qps: Annotated[int, Meta(ge=1, le=16)] = 1  # queue pairs between two NICs
    mtu: Annotated[int, Meta(ge=256, le=9216)] = 4096  # payload bytes
    scale_up: bool = True  # messages within a domain use its network; false: the NICs, like all others
    settings: dict[str, bool | int | float | str] = {}  # other settings of the transport, by name


class Sampling(_ScenarioPart, frozen=True, kw_only=True):
    """Data recorded over time."""

    every: Duration | None = None  # default: adapts to the length of the run, 256 to 512 samples
    around_faults: Duration = "100us"  # finer samples from half of this before each fault to this after it; 0us: none
    flows: Annotated[int, Meta(ge=0, le=256)] = 12  # connections whose windows are recorded


class Capture(_ScenarioPart, frozen=True, kw_only=True):
    """NICs whose packets are written to capture files; MRC only."""

    hosts: Annotated[tuple[int | str, ...], Meta(min_length=1)]  # NICs, by number or name
    limit: Annotated[int, Meta(ge=1, le=10_000_000)] = 20_000  # packets per NIC; later ones are only counted
    start: Duration = "0us"  # simulated time at which the capture begins
    snaplen: Annotated[int, Meta(ge=HEADERS, le=SNAPLEN)] = HEADERS  # bytes per frame; more includes payload, as zeros


class Restart(_ScenarioPart, frozen=True, kw_only=True):
    """The cost of a training job that stops; both values are assumptions of the scenario."""

    checkpoint_every: Duration  # time between two checkpoints
    takes: Duration  # from the stop until steps continue from the last checkpoint


class Published(_ScenarioPart, frozen=True, kw_only=True):
    """A published figure, shown beside the simulated one."""

    what: str
    value: float | None = None  # None: published in words or as a plot only
    unit: str = ""
    of: str = ""  # path of the simulated figure in the summary, such as goodput_gbps.nic.mean
    within_percent: float | None = None  # tolerance
    source: str
    words: str = ""


class Scenario(_ScenarioPart, frozen=True, kw_only=True):
    """A scenario file."""

    name: str
    description: str = ""
    fabric: str | Fabric  # a path relative to the scenario's folder (YAML or .topo), or the description itself
    transport: Transport = Transport()
    workloads: Annotated[tuple[Workload | Matrix, ...], Meta(min_length=1)]
    faults: tuple[dict[str, str | int | float | None], ...] = ()  # words as in docs/simulator/faults.md
    sampling: Sampling = Sampling()
    capture: Capture | None = None
    seed: Annotated[int, Meta(ge=0, lt=1 << 32)] = 1
    restart: Restart | None = None  # for training steps; default: a stop is reported without a cost
    until: Duration = "10s"  # limit of simulated time; flows that have not finished are reported as unfinished
    published: tuple[Published, ...] = ()


def load(path: str | Path) -> Scenario:
    """Read a scenario, load its fabric, and resolve its file names."""
    path = find(path)
    scenario, where = decode_placed(read_text(path), Scenario, str(path))
    placed = tuple(FaultText(step, f"{where(f'$.faults[{at}]')}: faults") for at, step in enumerate(scenario.faults))
    try:
        return completed(msgspec.structs.replace(scenario, faults=placed), path, where)
    except FieldError as error:
        raise _at(error, where) from None


def _at(error: FieldError, where: Where) -> ConfigError:
    return ConfigError(f"{where(error.place, str(error))}: {error}")


def located(error: FieldError, path: str | Path) -> ConfigError:
    """Return the error of a loaded scenario with the file and line of its field."""
    _, where = decode_placed(read_text(path), Scenario, str(path))
    return _at(error, where)


class FaultText(dict[str, Any]):
    """A fault as written, with its place in the file, so that errors name file and line."""

    def __init__(self, words: Mapping[str, Any], place: str) -> None:
        super().__init__(words)
        self.place = place


def completed(scenario: Scenario, path: Path, where: Where | None = None) -> Scenario:
    """Return a scenario with its fabric loaded and its file names resolved relative to `path`.

    FieldError: a value cannot be; `where` finds lines of the fabric in the file.
    """
    schedule(scenario, str(path))  # refuse invalid words before the fabric is built
    _refuse_no_time(scenario)
    _refuse_late(scenario, path)
    return msgspec.structs.replace(
        scenario,
        fabric=_fabric(scenario, path, where),
        workloads=tuple(_placed(workload, number, path) for number, workload in enumerate(scenario.workloads)),
    )


def _refuse_no_time(scenario: Scenario) -> None:
    """Refuse durations of 0: the run would be empty, or take samples for ever."""
    for name, duration in (("until", scenario.until), ("sampling: every", scenario.sampling.every)):
        if duration is not None and ps_of(duration) == 0:
            raise FieldError(f"$.{name.replace(': ', '.')}", f"{name}: {duration!r}: expected a time above 0")


def _refuse_late(scenario: Scenario, path: Path) -> None:
    """Refuse a fault of which nothing can happen before the limit of simulated time."""
    for number, step in enumerate(scenario.faults, 1):
        at = step.get("at", "0s")
        if time_ps(at, "at") >= ps_of(scenario.until):
            place = getattr(step, "place", f"{path}: faults")
            raise ConfigError(
                f"{place}, step {number}, at: {at!r} is not before the end of the run, until: {scenario.until!r}; "
                "use an earlier time, or a later `until`"
            )


def _fabric(scenario: Scenario, path: Path, where: Where | None) -> Fabric:
    if isinstance(scenario.fabric, Fabric):
        in_file = (lambda place, said="": where(f"$.fabric{place[1:]}", said)) if where else f"{path}: fabric"
        check(scenario.fabric, in_file)
        return scenario.fabric
    file = path.parent / scenario.fabric
    if not file.is_file():
        raise FieldError("$.fabric", f"fabric: {file}: file not found")
    return load_fabric(file)


def _placed(workload: Workload | Matrix, number: int, path: Path) -> Workload | Matrix:
    if not isinstance(workload, (Matrix, Trace)):
        return workload
    file = path.parent / workload.file
    if not file.is_file() and not Path(f"{file}.0.et").is_file():
        raise FieldError(f"$.workloads[{number}]", f"file: {workload.file!r} not found in the scenario's folder")
    if isinstance(workload, Trace) and workload.groups:
        workload = msgspec.structs.replace(workload, groups=str(path.parent / workload.groups))
    return msgspec.structs.replace(workload, file=str(file))


def schedule(scenario: Scenario, source: str = "scenario") -> Schedule:
    """Return the faults of a scenario in order of time."""
    places = [getattr(step, "place", "") for step in scenario.faults]
    return Schedule.of([dict(step) for step in scenario.faults], f"{source}: faults", places)
