"""Join what senders of one-way probes sent with what receivers say arrived, without a clock that both share.

A probe is known by plane, row of the plan, and a number that its sender drew. It is lost if its receiver has reported
without it, in a report that was certainly made after the probe should have arrived: one that answers orders which this
controller gave `FLIGHT_S` after it heard of the sending. Of receivers that do not report nothing is known, and nothing
counted; nor of what was sent before a receiver's agent was there. Rows above those of the plan are sent like data,
which may wait in queues.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.localise import Floats
from openmrc.operations.diagnosis.plane_rows import ProbedRows
from openmrc.operations.diagnosis.probe_plan import ProbeSet
from openmrc.operations.fleets.agents.messages import OneWays
from openmrc.operations.fleets.lab_prober import DATA_LATE_S

FLIGHT_S = 0.1  # a probe that takes longer is lost; one like data after `DATA_LATE_S`
GIVE_UP_S = 10.0
MOST_WAITING = 1 << 16  # numbers, of all hosts together

_Key = tuple[int, int, int]  # sender, plane, number


@dataclass
class _SentOneWay:
    at: float
    after: float  # when it had not been sent yet
    rows: Ints
    missing: npt.NDArray[np.bool_]
    queued: npt.NDArray[np.bool_]
    flight: Floats  # s


class OneWayJoin:
    """The one-way probes that are under way, as far as a controller knows."""

    def __init__(self, plans: list[ProbeSet]) -> None:
        self._plans = plans
        self._sent: dict[_Key, _SentOneWay] = {}
        self._early: dict[_Key, tuple[float, list[int], list[int]]] = {}  # arrivals before the sender's report

    def sent(self, nic: int, what: OneWays, now: float, after: float) -> None:
        """Take in what a host has sent, certainly after a time."""
        key = (nic, what.plane, what.number)
        if len(self._sent) >= MOST_WAITING or key in self._sent:
            return
        rows = np.unique(np.array(what.rows, dtype=np.int64))
        missing, queued = np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
        flight = np.where(rows < len(self._plans[what.plane]), FLIGHT_S, DATA_LATE_S)
        self._sent[key] = _SentOneWay(now, after, rows, missing, queued, flight)
        early = self._early.pop(key, None)
        if early is not None:
            self._arrive(key, *early[1:])

    def arrived(self, what: OneWays, now: float) -> None:
        """Take in what a host has received, from any number of senders that drew the same number."""
        source = self._plans[what.plane].source
        by_sender: dict[int, list[int]] = {}
        for row in what.rows:
            by_sender.setdefault(int(source[row % len(source)]), []).append(row)
        for nic, rows in by_sender.items():
            key = (nic, what.plane, what.number)
            if key in self._sent:
                self._arrive(key, rows, what.queued)
            elif len(self._early) < MOST_WAITING:
                early = self._early.setdefault(key, (now, [], []))
                early[1].extend(rows)
                early[2].extend(what.queued)

    def settled(self, now: float, since: Floats, proven: Floats) -> list[ProbedRows]:
        """Return what became of probes.

        `since`: the time, by NIC, from which on its agent has reported; `proven`: after which its last report was made.
        """
        found, done = [], []
        for key, each in self._sent.items():
            receiver = self._plans[key[1]].destination[each.rows % len(self._plans[key[1]])]
            is_over = (since[receiver] <= each.after) & (proven[receiver] >= each.at + each.flight)
            known = ~each.missing | is_over
            if known.all() or now - each.at > GIVE_UP_S:
                done.append(key)
                if known.any():
                    lost, queued = (flags[known].astype(np.int64) for flags in (each.missing, each.queued))
                    found.append(ProbedRows(key[1], each.rows[known], lost, queued))
        for key in done:
            del self._sent[key]
        self._early = {key: each for key, each in self._early.items() if now - each[0] < GIVE_UP_S}
        return found

    def _arrive(self, key: _Key, rows: list[int], queued: list[int]) -> None:
        sent = self._sent[key]
        sent.missing[np.isin(sent.rows, np.array(rows, dtype=np.int64))] = False
        sent.queued[np.isin(sent.rows, np.array(queued, dtype=np.int64))] = True
