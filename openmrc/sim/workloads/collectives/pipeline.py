"""Pipeline parallelism: micro-batches pass through stages on different hosts, activations forward, gradients back."""

from typing import Literal

import numpy as np

from openmrc.base.amounts import Bytes, Duration, bytes_of, ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import Count, Ids, Parameters, WorkloadGraph, WorkloadHosts, refuse_many

Work = tuple[str, int]  # "forward" or "backward", micro-batch


class Pipeline(Parameters, frozen=True, kw_only=True, tag="pipeline"):
    """Chain c has stage s at host c + s * (hosts / stages), so that stages are far apart."""

    size: Bytes  # of one micro-batch's activations, and of its gradients
    stages: Count
    microbatches: Count
    forward: Duration = "0us"  # computation of one micro-batch in one stage
    backward: Duration = "0us"
    schedule: Literal["gpipe", "1f1b"] = "1f1b"  # gpipe: all forward first; 1f1b: backward as soon as possible

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return computations and messages of all chains."""
        stages = self.stages
        if stages < 2 or hosts.count % stages:
            raise ConfigError(
                f"pipeline: stages: {stages} must be 2 or more and divide {hosts.count}, the number of hosts"
            )
        refuse_many(4 * self.microbatches * hosts.count, "microbatches")
        made = WorkloadGraph(hosts.count)
        where = np.arange(hosts.count).reshape(stages, -1)
        length = {"forward": ps_of(self.forward), "backward": ps_of(self.backward)}
        done: dict[tuple[str, int, int], Ids] = {}
        for stage in range(stages):
            before: Ids | None = None
            for direction, batch in order(stage, self):
                work = made.computations(where[stage], length[direction], ps_of(self.start))
                if before is not None:
                    made.follow(before, work)
                done[direction, stage, batch] = before = work
        _pass_on(made, where, done, self)
        return made


def order(stage: int, parameters: Pipeline) -> list[Work]:
    """Return the computations of a stage, in order."""
    batches = range(parameters.microbatches)
    forward: list[Work] = [("forward", batch) for batch in batches]
    backward: list[Work] = [("backward", batch) for batch in batches]
    if parameters.schedule == "gpipe":
        return forward + backward
    ahead = min(parameters.microbatches, parameters.stages - stage)
    paired = [work for pair in zip(backward, forward[ahead:], strict=False) for work in pair]
    return forward[:ahead] + paired + backward[len(forward) - ahead :]


def _pass_on(made: WorkloadGraph, where: Ids, done: dict[tuple[str, int, int], Ids], parameters: Pipeline) -> None:
    """Add the messages between neighbouring stages, and the last stage's turn from forward to backward."""
    last = parameters.stages - 1
    size = bytes_of(parameters.size)
    for batch in range(parameters.microbatches):
        made.follow(done["forward", last, batch], done["backward", last, batch])
        for stage in range(last):
            for direction, sender, receiver in (("forward", stage, stage + 1), ("backward", stage + 1, stage)):
                sent = made.messages(where[sender], where[receiver], size)
                made.follow(done[direction, sender, batch], sent)
                made.follow(sent, done[direction, receiver, batch])
