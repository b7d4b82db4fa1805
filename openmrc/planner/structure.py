"""What a training job exchanges, and how much of it a step waits for.

A group is a kind of parallelism whose traffic crosses the network; tensor parallelism stays inside machines. Its time
is a share of the ideal step. A part of it is exposed: the step waits for it. The rest is hidden behind computation,
with some slack: it may take longer by that share before the step waits for it too. Every group spans the whole job
through the others, so the slowest NIC sets the pace of all.
"""

from dataclasses import dataclass

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import Basis
from openmrc.planner.rows import check_types

COLLECTIVES = ("all_reduce", "all_to_all", "point_to_point")


@dataclass(frozen=True)
class Parallelism:
    """The traffic of one kind of parallelism."""

    name: str
    collective: str  # as in the table of responses
    share: float  # of the ideal step
    exposed: float  # part that computation does not hide, 0 to 1
    slack: float  # how much longer the hidden part may take, as a share of it
    source: str
    basis: Basis = Basis.GIVEN  # of these three

    def check(self) -> None:
        """Refuse values out of range."""
        check_types(self)
        for name, value, most in (("share", self.share, 1), ("exposed", self.exposed, 1), ("slack", self.slack, 10)):
            if not 0 <= value <= most:
                raise ConfigError(f"group {self.name}: {name} = {value:g}; 0 to {most} is allowed")
        if self.collective not in COLLECTIVES:
            raise ConfigError(f"group {self.name}: {self.collective!r} is not among {', '.join(COLLECTIVES)}")


_ASSUMED = ("assumption", Basis.OURS)
_ZHANG = ("arXiv 2502.19811; exposed and slack: assumption", Basis.OURS)
PRESETS = {
    "dense": (
        Parallelism("data parallel", "all_reduce", 0.12, 0.25, 0.5, *_ASSUMED),
        Parallelism("pipeline", "point_to_point", 0.04, 0.5, 0.5, *_ASSUMED),
    ),
    "moe": (
        Parallelism("data parallel", "all_reduce", 0.08, 0.25, 0.5, *_ASSUMED),
        Parallelism("pipeline", "point_to_point", 0.04, 0.5, 0.5, *_ASSUMED),
        # Communication takes 47 % of the time of mixture-of-experts layers before it is overlapped (Zhang et al.,
        # Comet, arXiv 2502.19811); how much of it remains exposed is an assumption.
        Parallelism("expert parallel", "all_to_all", 0.30, 0.4, 0.3, *_ZHANG),
    ),
}


def preset(name: str) -> tuple[Parallelism, ...]:
    """Return the groups of a preset; a `ConfigError` names those there are."""
    if name not in PRESETS:
        raise ConfigError(f"model {name!r} is not among {', '.join(PRESETS)}")
    return PRESETS[name]


def step(groups: tuple[Parallelism, ...], ratio: dict[str, float]) -> float:
    """Return the length of a step relative to the ideal one; `ratio`: of each collective's time to its ideal one."""
    extra = 0.0
    for group in groups:
        longer = ratio[group.collective] - 1
        extra += group.share * (group.exposed * longer + (1 - group.exposed) * max(0.0, longer - group.slack))
    return 1 + max(0.0, extra)
