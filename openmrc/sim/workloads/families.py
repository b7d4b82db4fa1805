"""Workload families by the `kind` a scenario names; the short ones are here, each a parameter class and its plan."""

from typing import Literal

import numpy as np

from openmrc.base.amounts import Bytes, Duration, bytes_of, ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads import trace, training_step
from openmrc.sim.workloads.collectives.kinds import COLLECTIVES, Collective, Families, planned
from openmrc.sim.workloads.plan import Amount, Count, Parameters, Share, WorkloadGraph, WorkloadHosts, refuse_many
from openmrc.sim.workloads.trace import Trace
from openmrc.sim.workloads.training_step import TrainingStep
from openmrc.units import PS_PER_S


class Outcast(Parameters, frozen=True, kw_only=True, tag="outcast"):
    """`sender` sends to `receivers` hosts drawn at random, all at once."""

    size: Bytes
    receivers: Count
    sender: Amount = 0


def plan_outcast(hosts: WorkloadHosts, parameters: Outcast, seed: int) -> WorkloadGraph:
    made = WorkloadGraph(hosts.count)
    if parameters.sender >= hosts.count:
        raise ConfigError(f"outcast: sender: {parameters.sender} is not a host; hosts are 0..{hosts.count - 1}")
    others = np.delete(np.arange(hosts.count), parameters.sender)
    if parameters.receivers > len(others):
        raise ConfigError(f"outcast: receivers: {parameters.receivers} is more than the {len(others)} other hosts")
    receivers = np.sort(np.random.default_rng(seed).choice(others, parameters.receivers, replace=False))
    made.messages(parameters.sender, receivers, bytes_of(parameters.size), ps_of(parameters.start))
    return made


class Incast(Parameters, frozen=True, kw_only=True, tag="incast"):
    """`senders` hosts send to `receiver`, all at once."""

    size: Bytes
    senders: Count
    receiver: Amount = 0
    first_sender: Amount | None = None  # senders are consecutive from here; default: random
    victim: tuple[Amount, Amount] | None = None  # source and destination of one more flow of the same size
    single_path: bool = False  # one path per sender, as TCP or plain RoCE; not for the victim


def plan_incast(hosts: WorkloadHosts, parameters: Incast, seed: int) -> WorkloadGraph:
    made = WorkloadGraph(hosts.count)
    for name, host in (("receiver", parameters.receiver), ("first_sender", parameters.first_sender or 0)):
        if host >= hosts.count:
            raise ConfigError(f"incast: {name}: {host} is not a host; hosts are 0..{hosts.count - 1}")
    others = np.delete(np.arange(hosts.count), parameters.receiver)
    if parameters.senders > len(others):
        raise ConfigError(f"incast: senders: {parameters.senders} is more than the {len(others)} other hosts")
    if parameters.first_sender is None:
        senders = np.sort(np.random.default_rng(seed).choice(others, parameters.senders, replace=False))
    else:
        senders = np.roll(others, -int(np.searchsorted(others, parameters.first_sender)))[: parameters.senders]
    size, start = bytes_of(parameters.size), ps_of(parameters.start)
    made.messages(senders, parameters.receiver, size, start, single_path=parameters.single_path)
    if parameters.victim is not None:
        made.mark("victim", int(made.messages(*parameters.victim, size, start)[0]))
    return made


class Checkpoint(Parameters, frozen=True, kw_only=True, tag="checkpoint"):
    """The last `storage` hosts store what the others write, each writer to one of them."""

    size: Bytes  # of each writer
    storage: Count
    piece: Bytes = "1MiB"
    window: Count = 4  # pieces of a writer in progress
    over: Duration = "0us"  # pieces begin evenly over this time; 0us: as soon as the window allows
    single_path: bool = True  # storage over TCP or plain RoCE; false: sprayed, as the job's own traffic


def plan_checkpoint(hosts: WorkloadHosts, parameters: Checkpoint, seed: int) -> WorkloadGraph:
    """Return the messages, ordered by piece."""
    if parameters.storage >= hosts.count:
        raise ConfigError(f"checkpoint: storage: {parameters.storage} of {hosts.count} hosts; some have to write")
    made = WorkloadGraph(hosts.count)
    writers = np.arange(hosts.count - parameters.storage)
    stores = hosts.count - parameters.storage + writers % parameters.storage
    size, piece = bytes_of(parameters.size), bytes_of(parameters.piece)
    pieces = -(-size // piece)
    refuse_many(pieces * len(writers), "piece")
    begun = []
    for number in range(pieces):
        start = ps_of(parameters.start) + ps_of(parameters.over) * number // pieces
        length = min(piece, size - number * piece)
        begun.append(made.messages(writers, stores, length, start, single_path=parameters.single_path))
        if number >= parameters.window:
            made.follow(begun[number - parameters.window], begun[number], acknowledged=True)
    return made


class Background(Parameters, frozen=True, kw_only=True, tag="background"):
    """Arrivals are a Poisson process over all hosts together."""

    size: Bytes  # mean
    sizes: Literal["fixed", "exponential"] = "exponential"
    load: Share  # of each host's rate, on average
    duration: Duration  # time during which messages arrive
    single_path: bool = True


def plan_background(hosts: WorkloadHosts, parameters: Background, seed: int) -> WorkloadGraph:
    """Return the messages, ordered by start."""
    made = WorkloadGraph(hosts.count)
    draw = np.random.default_rng(seed)
    mean, length = bytes_of(parameters.size), ps_of(parameters.duration)
    expected = parameters.load * hosts.count * hosts.nic_bits_per_s / 8 * length / PS_PER_S / mean
    refuse_many(round(expected), "duration")
    count = int(draw.poisson(expected))
    start = np.sort(draw.integers(0, max(1, length), count)) + ps_of(parameters.start)
    source = draw.integers(0, hosts.count, count)
    destination = (source + draw.integers(1, hosts.count, count)) % hosts.count
    sizes = draw.exponential(mean, count) if parameters.sizes == "exponential" else np.full(count, float(mean))
    bounded = np.clip(sizes.astype(np.int64), 1, (1 << 32) - 1)
    made.messages(source, destination, bounded, start, single_path=parameters.single_path)
    return made


Workload = Collective | Incast | Outcast | Background | Checkpoint | TrainingStep | Trace

_FAMILIES: Families = {
    **COLLECTIVES,
    "incast": plan_incast,
    "outcast": plan_outcast,
    "background": plan_background,
    "checkpoint": plan_checkpoint,
    "training_step": training_step.plan,
    "trace": trace.plan,
}


def plan_of(hosts: WorkloadHosts, parameters: Parameters, seed: int) -> WorkloadGraph:
    """Return the plan of any family, on its hosts, as often as it begins."""
    return planned(_FAMILIES, hosts, parameters, seed)
