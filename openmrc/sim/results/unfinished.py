"""Why a run ended with unfinished flows: which never ended, and for which of them each of the others waits.

A flow that was never posted waits for a release. Follow the releases that never came back to a message that was posted
and did not end, or that failed: that message is what it waits for. A message that was never posted and that no such
message holds back had not reached its start.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import Results
from openmrc.sim.workloads.joined import JoinedTraffic
from openmrc.sim.workloads.traffic import CompletionSide, Traffic
from openmrc.units import NEVER

SHOWN = 10  # flows of a kind that are listed by name
_NOBODY = -1


class UnfinishedCause(StrEnum):
    """Why a run ended although flows were left."""

    STANDSTILL = "standstill"  # nothing could happen any more
    FAILED = "failed"  # likewise, because connections ended in error, or all that was left had failed
    LIMIT = "limit"  # the limit of simulated time
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Unfinished:
    """The flows that a run left, as message numbers."""

    cause: UnfinishedCause
    failed: Ints  # abandoned by their transport
    begun: Ints  # posted, neither finished nor failed
    waiting: Ints  # never posted
    holder: Ints  # of each of `waiting`: the message it waits for, or -1 if its own start lies after the end


def unfinished(work: JoinedTraffic, results: Results) -> Unfinished:
    """Return the flows that did not finish."""
    flows = work.moving
    left = flows[results.finished[flows] >= NEVER]
    failed = left[results.failed[left] < NEVER]
    open_ = left[results.failed[left] >= NEVER]
    begun = open_[results.started[open_] < NEVER]
    waiting = open_[results.started[open_] >= NEVER]
    cause = _cause(results) if open_.size or not left.size else UnfinishedCause.FAILED
    return Unfinished(cause, failed, begun, waiting, _holders(work.traffic, results)[waiting])


def _cause(results: Results) -> UnfinishedCause:
    if results.interrupted:
        return UnfinishedCause.INTERRUPTED
    if not results.standstill:
        return UnfinishedCause.LIMIT
    return UnfinishedCause.FAILED if (results.failed < NEVER).any() else UnfinishedCause.STANDSTILL


def _holders(traffic: Traffic, results: Results) -> Ints:
    """Return for each message the posted one that holds it back, or -1; every message is visited once."""
    cause = traffic.causes
    end = np.where(traffic.release_side == CompletionSide.RECEIVER, results.received[cause], results.finished[cause])
    missing = end >= NEVER
    before, after = cause[missing], traffic.released[missing]
    first = np.searchsorted(before, np.arange(traffic.messages + 1))
    holder = np.full(traffic.messages, _NOBODY, np.int64)
    unposted = results.started >= NEVER
    front = np.unique(before[~unposted[before]])
    held_by = front
    while len(front):
        counts = first[front + 1] - first[front]
        edges = np.repeat(first[front] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        reached, owner = after[edges], np.repeat(held_by, counts)
        new = (holder[reached] == _NOBODY) & unposted[reached]
        front, at = np.unique(reached[new], return_index=True)
        held_by = owner[new][at]
        holder[front] = held_by
    return holder


def summarize(found: Unfinished, work: JoinedTraffic, results: Results, topology: Topology) -> dict[str, Any]:
    """Return the `unfinished` of a summary: counts, the messages that others wait for, who waits, deadlocked ports."""
    held = found.holder[found.holder != _NOBODY]
    holders, counts = np.unique(held, return_counts=True)
    others = dict(zip(holders.tolist(), counts.tolist(), strict=True))
    roots = np.union1d(np.concatenate([found.failed, found.begun]), holders)
    failed = set(found.failed.tolist())
    order = sorted(roots.tolist(), key=lambda flow: (-others.get(flow, 0), flow))
    waits = zip(found.waiting[:SHOWN].tolist(), found.holder[:SHOWN].tolist(), strict=True)
    return {
        "cause": str(found.cause),
        "failed": len(found.failed),
        "begun": len(found.begun),
        "waiting": len(found.waiting),
        "deadlock": [topology.link_name(link) for link in results.deadlock],
        "first": [
            work.described(flow, topology) | {"failed": flow in failed, "waited_for_by": others.get(flow, 0)}
            for flow in order[:SHOWN]
        ],
        "waiting_first": [
            work.described(flow, topology) | {"for_flow": holder if holder != _NOBODY else None}
            for flow, holder in waits
        ],
    }


def describe(left: dict[str, Any], flows: int, until: str, simulated_us: float) -> str:
    """Return the `unfinished` of a summary as one sentence; `until` is the limit as the scenario has it."""
    count = left["failed"] + left["begun"] + left["waiting"]
    text = f"{count:,} of {flows:,} flows did not finish"
    if left["cause"] == UnfinishedCause.INTERRUPTED:
        return f"{text}: interrupted at {simulated_us:,.6g} us"
    if left["cause"] == UnfinishedCause.LIMIT:
        text += f" within the limit of {until} of simulated time; raise `until` to run longer"
    else:
        text += f"; nothing could happen after {simulated_us:,.6g} us"
    if left["failed"]:
        text += f"; {left['failed']:,} failed with their connections"
    if ports := left["deadlock"]:
        shown = ", ".join(ports[:SHOWN]) + ", ..." * (len(ports) > SHOWN)
        text += f"; PFC deadlock: {len(ports)} ports wait for each other in a cycle, {shown}"
    named = [each for each in left["first"] if each["waited_for_by"]]
    if left["cause"] == UnfinishedCause.STANDSTILL:
        named = left["first"]
    return text + "".join(f"; {_held(each)}" for each in named[:3])


def _held(each: dict[str, Any]) -> str:
    others = each["waited_for_by"]
    waits = f", and {others:,} other{'s wait' if others > 1 else ' waits'} for it" if others else ""
    ends = "failed" if each["failed"] else "did not end"
    return f"flow {each['flow']} ({each['source']} to {each['destination']}, {each['bytes']:,} bytes) {ends}{waits}"
