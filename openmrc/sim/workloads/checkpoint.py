"""Checkpoints: hosts write to storage, piece by piece, at once or spread over a time."""

from __future__ import annotations

import numpy as np

from openmrc.base.amounts import Bytes, Duration, bytes_of, ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.parameters import Count, Parameters
from openmrc.sim.workloads.plan import WorkloadGraph, WorkloadHosts, refuse_many


class Checkpoint(Parameters, frozen=True, kw_only=True, tag="checkpoint"):
    """The last `storage` hosts store what the others write, each writer to one of them."""

    size: Bytes  # of each writer
    storage: Count
    piece: Bytes = "1MiB"
    window: Count = 4  # pieces of a writer in progress
    over: Duration = "0us"  # pieces begin evenly over this time; 0us: as soon as the window allows
    single_path: bool = True  # storage over TCP or plain RoCE; false: sprayed, as the job's own traffic


def plan(hosts: WorkloadHosts, parameters: Checkpoint, seed: int) -> WorkloadGraph:
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
