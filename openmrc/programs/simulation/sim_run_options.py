"""The options of `mrc sim run`, in groups: each is a dataclass, and a panel of the help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import typer

from openmrc.base.amounts import ps_of
from openmrc.errors import FieldError, UsageError
from openmrc.fabric.model.build import load
from openmrc.programs.outcome import check_folder
from openmrc.sim.scenario.description import Capture, Matrix, Scenario, Transport, TransportName
from openmrc.sim.scenario.matrix import StartUnit
from openmrc.sim.transports.uet.spraying.names import LoadBalancing
from openmrc.sim.workloads.trace import Trace


@dataclass(frozen=True)
class WithoutScenario:
    """A matrix or trace of another tool, and the fabric and transport that it runs on."""

    panel: ClassVar = "Instead of a scenario"
    tm: Annotated[Path | None, typer.Option(help="Run an htsim connection matrix (.cm).")] = None
    trace: Annotated[
        Path | None, typer.Option(help="Run a trace: Chakra (NAME or NAME.0.et), GOAL, or SimAI text.")
    ] = None
    topo: Annotated[
        Path | None, typer.Option(help="The fabric for --tm or --trace: fabric.yaml, or htsim's .topo.")
    ] = None
    transport: Annotated[TransportName, typer.Option(help="Transport.")] = "mrc"
    load_balancing: Annotated[LoadBalancing | None, typer.Option(help="Load balancing, with --transport uet.")] = None
    qps: Annotated[int, typer.Option(min=1, max=16, help="Queue pairs per flow.")] = 1
    mtu: Annotated[int, typer.Option(min=256, max=9216, help="Payload bytes per packet.")] = 4096
    cm_start_unit: Annotated[StartUnit, typer.Option(help="Unit of `start` in the matrix.")] = "us"
    ranks_per_nic: Annotated[int, typer.Option(min=1, help="Ranks of a --trace that share a NIC.")] = 1
    compute_scale: Annotated[
        float, typer.Option(min=0, max=1000, help="Factor for the computation times of a --trace.")
    ] = 1.0
    layers: Annotated[int, typer.Option(min=0, help="Run only the first N layers of a SimAI --trace; 0: all.")] = 0
    until: Annotated[str, typer.Option(help="Limit of simulated time.")] = "10s"

    def check(self, scenario: Path | None) -> None:
        """Refuse anything but one scenario, or one matrix or trace with a fabric."""
        given = [each for each in (scenario, self.tm, self.trace) if each is not None]
        if len(given) != 1 or (scenario is None) == (self.topo is None):
            raise UsageError("mrc sim run: expected SCENARIO.yaml, or --tm FILE.cm or --trace FILE with --topo FABRIC")

    def scenario(self) -> Scenario:
        """Return the scenario of the matrix or trace."""
        ps_of(self.until)
        assert self.topo is not None
        work = self._work()
        carried = Transport(name=self.transport, load_balancing=self.load_balancing, qps=self.qps, mtu=self.mtu)
        name = Path(work.file).stem
        return Scenario(name=name, fabric=load(self.topo), transport=carried, workloads=(work,), until=self.until)

    def _work(self) -> Matrix | Trace:
        if self.tm is not None:
            return Matrix(file=str(self.tm), start_unit=self.cm_start_unit)
        return Trace(
            file=str(self.trace), ranks_per_nic=self.ranks_per_nic, compute_scale=self.compute_scale, layers=self.layers
        )


@dataclass(frozen=True)
class RunOverrides:
    """What the command line changes in a scenario, and how it is run."""

    panel: ClassVar = "On top of a scenario"
    seed: Annotated[
        int | None, typer.Option(min=0, max=(1 << 32) - 1, help="Random seed; overrides the scenario's.")
    ] = None
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads; the result is the same for any number.")] = 1
    capture: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Capture this NIC's packets to HOST.pcapng; a number or a name such as h3."),
    ] = None

    def refuse(self, error: FieldError) -> None:
        """Raise the error of a field as that of the option that set it, if one did."""
        if self.capture and error.place.startswith("$.capture"):
            raise UsageError(f"--{error}")

    def applied(self, scenario: Scenario) -> Scenario:
        changes: dict[str, Any] = {}
        if self.seed is not None:
            changes["seed"] = self.seed
        if self.capture:
            hosts = tuple(host for word in self.capture for host in word.split(",") if host)
            if not hosts:
                given = ",".join(self.capture)
                raise UsageError(f"--capture: {given!r} names no NIC; expected numbers or names such as h3")
            rest = msgspec.structs.asdict(scenario.capture) if scenario.capture else {}
            changes["capture"] = Capture(**{**rest, "hosts": hosts})
        return msgspec.structs.replace(scenario, **changes)


@dataclass(frozen=True)
class RunOutput:
    panel: ClassVar = "Output"
    perfetto: Annotated[
        Path | None, typer.Option(help="Write a timeline for ui.perfetto.dev (trace event JSON) to this file.")
    ] = None
    out: Annotated[Path | None, typer.Option(help="Folder for the results [runs/NAME; none with --topo].")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False

    def refuse_unwritable(self) -> None:
        """Refuse results that could not be written before the run, not after it."""
        check_folder(self.out, "--out")
        file = self.perfetto
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            wrong = f"{file} is a folder" if file.is_dir() else f"folder {file.parent} does not exist"
            raise UsageError(f"--perfetto: {wrong}; expected a file such as timeline.json")
