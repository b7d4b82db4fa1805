"""Read SimAI's workload text, which is that of ASTRA-sim 1 (github.com/aliyun/SimAI): layers of a training step.

The first line gives the schedule and, as pairs in any order, the number of GPUs and the sizes of their groups; the
second is the number of layers; each further line is a layer. A step computes and communicates forward through the
layers, then backward: weight gradient (its collective runs in the background) and input gradient of each layer. At the
end it waits for the collectives of the weight gradients and computes each weight update. `pp`, `vpp` and `ga` determine
the groups only, because the files repeat their layers for them.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from openmrc.collectives.choice import Collective
from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import Ids, WorkloadGraph
from openmrc.sim.workloads.traces.collective import AlgorithmName, lower
from openmrc.sim.workloads.traces.lines import numbered
from openmrc.sim.workloads.traces.operations import LARGEST, LONGEST, MOST_RANKS
from openmrc.units import PS_PER_NS

MOST_LAYERS = 1_000_000
MOST_MESSAGES = 50_000_000
SCHEDULES = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER")
TENSOR, EXPERT, DATA, EXPERT_DATA = "tensor", "expert", "data", "expert_data"
_KINDS = {
    "ALLREDUCE": Collective.ALL_REDUCE,
    "ALLGATHER": Collective.ALL_GATHER,
    "REDUCESCATTER": Collective.REDUCE_SCATTER,
    "ALLTOALL": Collective.ALL_TO_ALL,
}
_SUFFIXES = {"_DP_EP": EXPERT_DATA, "_EP": EXPERT}
_PHASES = ("forward", "input gradient", "weight gradient")
_COUNT = re.compile(r"\d{1,18}")
_PAIR = re.compile(r"([A-Za-z_]+):\s*(\S+)")


@dataclass(frozen=True)
class Phase:
    """A computation and the collective after it."""

    length: int  # ps
    collective: Collective | None
    group: str
    size: int  # bytes of the whole vector at each rank


@dataclass(frozen=True)
class Layer:
    """A line of the file."""

    name: str
    line: int
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase
    update: int  # ps


@dataclass
class SimaiStep:
    """The content of a file: sizes of groups, and layers."""

    path: str
    ranks: int = 0
    tensor: int = 1
    expert: int = 1
    pipeline: int = 1
    layers: list[Layer] = field(default_factory=list)

    def groups(self, kind: str) -> Ids:
        """Return a row of ranks per group: tensor groups are neighbours, the others are strided."""
        ranks = np.arange(self.ranks)
        stages = ranks.reshape(self.pipeline, -1, self.tensor)  # stage, data, tensor
        if kind == TENSOR:
            return ranks.reshape(-1, self.tensor)
        if kind == DATA:
            return np.ascontiguousarray(stages.transpose(0, 2, 1)).reshape(-1, stages.shape[1])
        experts = stages.reshape(self.pipeline, -1, self.expert, self.tensor)  # stage, copy, expert, tensor
        order = (0, 1, 3, 2) if kind == EXPERT else (0, 2, 3, 1)
        moved = experts.transpose(order)
        return np.ascontiguousarray(moved).reshape(-1, moved.shape[-1])


def read(path: Path, most: int = 0) -> SimaiStep:
    """Read a file, or its first `most` layers; raise ConfigError with file and line if it is invalid."""
    lines = numbered(path)
    number, head = next(lines, (1, ""))
    step = _header(path, number, head)
    number, text = next(lines, (2, ""))
    if not _COUNT.fullmatch(text.strip()) or not 1 <= int(text) <= MOST_LAYERS:
        raise ConfigError(f"{path}:{number}: {text[:40]!r}: expected the number of layers, 1..{MOST_LAYERS:,}")
    announced = int(text)
    for number, text in lines:
        if len(step.layers) == (most or announced):
            break
        if text.strip():
            step.layers.append(_layer(path, number, text))
    else:
        if len(step.layers) < announced and len(step.layers) != most:
            raise ConfigError(f"{path}:{number}: the file ends after {len(step.layers)} of {announced} layers")
    return step


def _header(path: Path, number: int, line: str) -> SimaiStep:
    schedule, _, rest = line.strip().partition(" ")
    if schedule not in SCHEDULES:
        raise ConfigError(f"{path}:{number}: schedule {schedule[:40]!r}; expected {', '.join(SCHEDULES)}")
    pairs = dict(_PAIR.findall(rest))

    def given(name: str, default: int | None) -> int:
        value = pairs.get(name, default)
        if value is None or not _COUNT.fullmatch(str(value)) or not 1 <= int(value) <= MOST_RANKS:
            what = "missing in the first line" if value is None else value
            raise ConfigError(f"{path}:{number}: {name}: {what}: expected a number in 1..{MOST_RANKS}")
        return int(value)

    step = SimaiStep(
        str(path), given("all_gpus", None), given("model_parallel_NPU_group", 1), given("ep", 1), given("pp", 1)
    )
    if step.ranks % (step.tensor * step.pipeline) or step.ranks // (step.tensor * step.pipeline) % step.expert:
        raise ConfigError(
            f"{path}:{number}: all_gpus: {step.ranks} is not a multiple of model_parallel_NPU_group {step.tensor} x "
            f"pp {step.pipeline} x ep {step.expert}"
        )
    return step


def _layer(path: Path, number: int, line: str) -> Layer:
    words = line.split()
    if len(words) != 12:
        raise ConfigError(
            f"{path}:{number}: {len(words)} columns; expected 12: name, a number, three groups of compute time, "
            "collective and bytes, and the time of the update"
        )
    forward, inputs, weights = (
        _phase(path, number, words[at : at + 3], DATA if at == 8 else TENSOR, phase)
        for at, phase in zip((2, 5, 8), _PHASES, strict=True)
    )
    return Layer(words[0][:80], number, forward, inputs, weights, _time(path, number, words[11], "update"))


def _phase(path: Path, number: int, words: list[str], plain: str, phase: str) -> Phase:
    kind, group = words[1], plain
    for suffix, name in _SUFFIXES.items():
        if kind.endswith(suffix):
            kind, group = kind.removesuffix(suffix), name
            break
    if kind not in ("NONE", *_KINDS):
        known = ", ".join(("NONE", *_KINDS))
        raise ConfigError(
            f"{path}:{number}: {phase}: collective {words[1][:40]!r}; expected {known}, with _EP or _DP_EP"
        )
    if not _COUNT.fullmatch(words[2]) or int(words[2]) > LARGEST:
        raise ConfigError(f"{path}:{number}: {phase}: {words[2][:40]!r}: expected a number of bytes")
    size = int(words[2])
    moves = kind != "NONE" and size > 0
    return Phase(_time(path, number, words[0], phase), _KINDS[kind] if moves else None, group, size)


def _time(path: Path, number: int, word: str, what: str) -> int:
    if not _COUNT.fullmatch(word) or int(word) * PS_PER_NS > LONGEST:
        raise ConfigError(f"{path}:{number}: {what}: {word[:40]!r}: expected a compute time in ns")
    return int(word) * PS_PER_NS


def plan_of(
    step: SimaiStep, nics: Ids, hosts: int, algorithm: AlgorithmName, scale: float, start: int
) -> WorkloadGraph:
    """Return the plan of one step; `nics` is the NIC of each rank, `scale` multiplies computations, `start` is ps."""
    program = _Program(step, nics, WorkloadGraph(hosts), algorithm, scale, start)
    for layer in step.layers:
        program.run(layer, layer.forward, "forward")
    background = []
    for layer in reversed(step.layers):
        background.append((layer, program.begin(layer, layer.weight_gradient, "weight gradient")))
        program.run(layer, layer.input_gradient, "input gradient")
    for layer, ended in background:
        program.wait(ended)
        program.compute(f"{layer.name}: update", layer.update)
    return program.finished()


class _Program:
    """The sequence of operations that every rank runs."""

    def __init__(
        self, step: SimaiStep, nics: Ids, plan: WorkloadGraph, algorithm: AlgorithmName, scale: float, start: int
    ) -> None:
        self._step, self._nics, self._plan = step, nics, plan
        self._algorithm, self._scale, self._start = algorithm, scale, start
        self._ready: Ids | None = None  # by rank: the node that the next operation waits for
        self._messages = 0

    def compute(self, name: str, length: int) -> None:
        """Add a computation at every rank."""
        if not length and self._ready is not None:
            return
        self._plan.label(name)
        made = self._plan.computations(self._nics, round(length * self._scale), self._start)
        if self._ready is not None:
            self._plan.follow(self._ready, made)
        self._ready = made

    def run(self, layer: Layer, phase: Phase, name: str) -> None:
        """Add a computation and its collective; the next operation waits for both."""
        self.wait(self.begin(layer, phase, name))

    def begin(self, layer: Layer, phase: Phase, name: str) -> Ids | None:
        """Add a computation and start its collective; return its last node per rank, or None without a collective."""
        self.compute(f"{layer.name}: {name}", phase.length)
        members = self._step.groups(phase.group)
        if phase.collective is None or members.shape[1] < 2:
            return None
        label, kind = f"{layer.name}: {name}, {phase.collective.name.lower()}", phase.collective.name.lower()
        self._plan.label(label)
        self._plan.kinds[label] = kind
        gather = phase.collective == Collective.ALL_GATHER
        size = -(-phase.size // members.shape[1]) if gather else phase.size
        try:
            return self._carry(members, phase.collective, size)
        except ConfigError as error:
            raise ConfigError(f"{self._step.path}:{layer.line}: {name}: {error}") from None

    def _carry(self, members: Ids, collective: Collective, size: int) -> Ids:
        assert self._ready is not None
        ends = self._plan.computations(self._nics, 0, self._start)
        lowered = lower(self._plan, self._nics[members], collective, size, self._algorithm, self._start)
        self._messages += lowered.ids.size
        if self._messages > MOST_MESSAGES:
            raise ConfigError(f"more than {MOST_MESSAGES:,} messages; give layers: N to simulate the first N")
        senders, receivers = members[:, lowered.sender], members[:, lowered.receiver]
        self._plan.follow(self._ready[senders].ravel(), lowered.ids.ravel())
        self._plan.follow(lowered.ids.ravel(), ends[senders].ravel(), acknowledged=True)
        self._plan.follow(lowered.ids.ravel(), ends[receivers].ravel())
        return ends

    def wait(self, ended: Ids | None) -> None:
        """Make every rank wait for the end of a collective that it started."""
        if ended is None:
            return
        assert self._ready is not None
        self._plan.label("")
        both = self._plan.computations(self._nics, 0, self._start)
        self._plan.follow(self._ready, both)
        self._plan.follow(ended, both)
        self._ready = both

    def finished(self) -> WorkloadGraph:
        """Return the plan, with its end marked as the end of a step."""
        assert self._ready is not None
        self._plan.label("")
        gate = self._plan.gate()
        self._plan.follow(self._ready, gate)
        self._plan.mark("step", gate)
        return self._plan
