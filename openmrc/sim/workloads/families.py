"""The workloads that a scenario can name, a class each; the short ones are here."""

from typing import Literal

import numpy as np

from openmrc.base.amounts import Bytes, Duration, bytes_of, ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import Amount, Count, Parameters, Share, WorkloadGraph, WorkloadHosts, refuse_many
from openmrc.sim.workloads.trace import Trace
from openmrc.sim.workloads.training_step import Collective, TrainingStep
from openmrc.units import PS_PER_S


class Outcast(Parameters, frozen=True, kw_only=True, tag="outcast"):
    """`sender` sends to `receivers` hosts drawn at random, all at once."""

    size: Bytes
    receivers: Count
    sender: Amount = 0

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        made = WorkloadGraph(hosts.count)
        if self.sender >= hosts.count:
            raise ConfigError(f"outcast: sender: {self.sender} is not a host; hosts are 0..{hosts.count - 1}")
        others = np.delete(np.arange(hosts.count), self.sender)
        if self.receivers > len(others):
            raise ConfigError(f"outcast: receivers: {self.receivers} is more than the {len(others)} other hosts")
        receivers = np.sort(np.random.default_rng(seed).choice(others, self.receivers, replace=False))
        made.messages(self.sender, receivers, bytes_of(self.size), ps_of(self.start))
        return made


class Incast(Parameters, frozen=True, kw_only=True, tag="incast"):
    """`senders` hosts send to `receiver`, all at once."""

    size: Bytes
    senders: Count
    receiver: Amount = 0
    first_sender: Amount | None = None  # senders are consecutive from here; default: random
    victim: tuple[Amount, Amount] | None = None  # source and destination of one more flow of the same size
    single_path: bool = False  # one path per sender, as TCP or plain RoCE; not for the victim

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        made = WorkloadGraph(hosts.count)
        for name, host in (("receiver", self.receiver), ("first_sender", self.first_sender or 0)):
            if host >= hosts.count:
                raise ConfigError(f"incast: {name}: {host} is not a host; hosts are 0..{hosts.count - 1}")
        others = np.delete(np.arange(hosts.count), self.receiver)
        if self.senders > len(others):
            raise ConfigError(f"incast: senders: {self.senders} is more than the {len(others)} other hosts")
        if self.first_sender is None:
            senders = np.sort(np.random.default_rng(seed).choice(others, self.senders, replace=False))
        else:
            senders = np.roll(others, -int(np.searchsorted(others, self.first_sender)))[: self.senders]
        size, start = bytes_of(self.size), ps_of(self.start)
        made.messages(senders, self.receiver, size, start, single_path=self.single_path)
        if self.victim is not None:
            made.mark("victim", int(made.messages(*self.victim, size, start)[0]))
        return made


class Checkpoint(Parameters, frozen=True, kw_only=True, tag="checkpoint"):
    """The last `storage` hosts store what the others write, each writer to one of them."""

    size: Bytes  # of each writer
    storage: Count
    piece: Bytes = "1MiB"
    window: Count = 4  # pieces of a writer in progress
    over: Duration = "0us"  # pieces begin evenly over this time; 0us: as soon as the window allows
    single_path: bool = True  # storage over TCP or plain RoCE; false: sprayed, as the job's own traffic

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return the messages, ordered by piece."""
        if self.storage >= hosts.count:
            raise ConfigError(f"checkpoint: storage: {self.storage} of {hosts.count} hosts; some have to write")
        made = WorkloadGraph(hosts.count)
        writers = np.arange(hosts.count - self.storage)
        stores = hosts.count - self.storage + writers % self.storage
        size, piece = bytes_of(self.size), bytes_of(self.piece)
        pieces = -(-size // piece)
        refuse_many(pieces * len(writers), "piece")
        begun = []
        for number in range(pieces):
            start = ps_of(self.start) + ps_of(self.over) * number // pieces
            length = min(piece, size - number * piece)
            begun.append(made.messages(writers, stores, length, start, single_path=self.single_path))
            if number >= self.window:
                made.follow(begun[number - self.window], begun[number], acknowledged=True)
        return made


class Background(Parameters, frozen=True, kw_only=True, tag="background"):
    """Arrivals are a Poisson process over all hosts together."""

    size: Bytes  # mean
    sizes: Literal["fixed", "exponential"] = "exponential"
    load: Share  # of each host's rate, on average
    duration: Duration  # time during which messages arrive
    single_path: bool = True

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return the messages, ordered by start."""
        made = WorkloadGraph(hosts.count)
        draw = np.random.default_rng(seed)
        mean, length = bytes_of(self.size), ps_of(self.duration)
        expected = self.load * hosts.count * hosts.nic_bits_per_s / 8 * length / PS_PER_S / mean
        refuse_many(round(expected), "duration")
        count = int(draw.poisson(expected))
        start = np.sort(draw.integers(0, max(1, length), count)) + ps_of(self.start)
        source = draw.integers(0, hosts.count, count)
        destination = (source + draw.integers(1, hosts.count, count)) % hosts.count
        sizes = draw.exponential(mean, count) if self.sizes == "exponential" else np.full(count, float(mean))
        bounded = np.clip(sizes.astype(np.int64), 1, (1 << 32) - 1)
        made.messages(source, destination, bounded, start, single_path=self.single_path)
        return made


Workload = Collective | Incast | Outcast | Background | Checkpoint | TrainingStep | Trace
