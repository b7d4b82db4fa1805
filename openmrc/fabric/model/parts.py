"""Parts with their prices and failure rates; the defaults are in `parts.yaml`, a user may supply another file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from openmrc.base.yaml_file import decode
from openmrc.errors import ConfigError

Positive = Annotated[float, Meta(gt=0)]
Number = Annotated[float, Meta(ge=0)]

PARTS_FILE = Path(__file__).with_name("parts.yaml")


class Basis(StrEnum):
    """What a number rests on."""

    PUBLISHED = "published"  # in a source that is named
    INFERRED = "inferred"  # from one, with an assumption of ours
    OURS = "ours"  # an assumption, or a measurement of our own simulator
    GIVEN = "given"  # by the user


class _Sourced(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    source: str  # where the numbers come from
    assumption: bool = False  # no public source


class Switch(_Sourced, frozen=True, kw_only=True):
    """Describe a switch model."""

    name: str
    tbps: Positive
    ports: Annotated[int, Meta(ge=2)]  # most it can be split into
    watts: Number  # without optics
    cost: Number

    def radix(self, gbps: float) -> int:
        """Count its ports at a rate."""
        return min(self.ports, int(self.tbps * 1000 / gbps + 1e-9))


class Optic(_Sourced, frozen=True, kw_only=True):
    """Describe a pluggable module; slower ports share one."""

    gbps: Positive
    watts: Number
    cost: Number


class Fibre(_Sourced, frozen=True, kw_only=True):
    """Price the cable between two modules."""

    cost: Number


class FailureRate(_Sourced, frozen=True, kw_only=True):
    """Say how often one part fails and how long it stays so."""

    mtbf_hours: Positive
    mttr_hours: Number
    mtbf_basis: Basis = Basis.GIVEN
    mttr_basis: Basis = Basis.GIVEN


class Failures(Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the failure rates of the network's parts."""

    nic_link: FailureRate
    fabric_link: FailureRate
    nic_optic: FailureRate
    t0: FailureRate
    t1: FailureRate
    nic_flap: FailureRate  # goes down and comes back by itself
    fabric_flap: FailureRate
    nic_grey: FailureRate  # loses a share of its packets
    fabric_grey: FailureRate
    nic_slow: FailureRate  # runs at half its rate
    fabric_slow: FailureRate
    nic_burst: FailureRate  # bit errors for a moment
    fabric_burst: FailureRate
    t0_reboot: FailureRate
    t1_reboot: FailureRate
    t0_maintenance: FailureRate  # planned
    t1_maintenance: FailureRate
    tray: FailureRate  # a cable tray: the NIC links of a group of hosts in one plane
    feed: FailureRate  # a power feed: a rack of hosts
    batch: FailureRate  # a bad batch: links between switches that turn grey together


class HostFailures(Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the failure rates of everything else, for each GPU."""

    gpu: FailureRate
    memory: FailureRate
    software: FailureRate
    nic: FailureRate
    other: FailureRate


class Parts(Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the whole file."""

    switches: tuple[Switch, ...]
    optic: Optic
    fibre: Fibre
    failures: Failures
    host: HostFailures

    def switch(self, tbps: float) -> Switch:
        """Return the model of a capacity; a `ConfigError` names those there are."""
        for switch in self.switches:
            if abs(switch.tbps - tbps) < 1e-6:
                return switch
        known = ", ".join(switch.name for switch in self.switches)
        raise ConfigError(
            f"no switch of {tbps:g}T in the parts file, only {known}; add it to a copy and give that with --parts"
        )


def load_parts(path: str | Path | None = None) -> Parts:
    """Read a parts file, the package's own unless one is given."""
    source = Path(path) if path else PARTS_FILE
    parts = decode(source, Parts)
    if not parts.switches:
        raise ConfigError(f"{source}: `switches` is empty; at least one model is needed")
    return parts
