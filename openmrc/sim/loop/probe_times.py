"""When the probes of a run are sent: each once in a period, at its own time, whatever the traffic does."""

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.core.rows import column, table
from openmrc.errors import ConfigError
from openmrc.sim.loop import window
from openmrc.sim.network.forwarding.probe_packets import PLACES
from openmrc.sim.network.network_tables import BYTE_TIME_BITS, Network, ProbeLink, Service, SimulatedProbe
from openmrc.units import NEVER

SMALL = 256  # bytes, as a switch that trims leaves whole


class ProbeTimes:
    """Sends probes between windows, up to a window after their time."""

    def __init__(self, links: Ints, turns: Ints, at: Ints, period: int, sizes: Ints, late: Ints) -> None:
        """`links`: a row a probe, -1 behind the last; which are sent when in each `period` (ps); bytes of each.

        `late`: ps after which one is lost. Those of more than `SMALL` bytes go with data, others with control packets.
        What arrives before, but later than over the ports of now with full queues, has met a slow one.
        """
        if links.shape[1] > PLACES:
            raise ConfigError(f"probes: a path of {links.shape[1]} links; at most {PLACES}")
        self._links, self.period, self._sizes, self._late = links, period, sizes, late
        order = np.argsort(at, kind="stable")
        self._turns, self._at = turns[order].astype(np.int64), at[order]
        self._round, self._next = 0, 0
        self.sent_at = np.full(len(links), -1, dtype=np.int64)
        self._full, self._wire = np.zeros((2, len(links)), dtype=np.int64)  # ps: of full queues on a path; of a packet
        self._known = np.zeros((3, len(links)), dtype=np.int64)
        self.muted: npt.NDArray[np.bool_] = np.zeros(len(links), dtype=bool)  # those that are not sent now

    @property
    def next_at(self) -> int:
        """Return when the next probe is due (ps)."""
        return self._round * self.period + int(self._at[self._next])

    def installed(self, network: Network) -> Network:
        if len(network.shards) > 1:
            raise ConfigError("probes: a simulation with probes runs on one thread")
        paths = np.full((len(self._links), PLACES), -1, dtype=np.int64)
        paths[:, : self._links.shape[1]] = self._links
        made = network._replace(probes=table(SimulatedProbe, len(paths)), probe_links=table(ProbeLink, paths.size))
        column(made.probe_links, "link")[:] = paths.ravel()
        capacity, delay, byte_time = (column(made.ports, name) for name in ("capacity", "delay", "byte_time"))
        wait, first = np.minimum(capacity, NEVER // (2 * PLACES)), self._links[:, 0]
        self._full = np.where(self._links >= 0, (delay + wait)[self._links], 0).sum(axis=1)
        self._full -= wait[first]  # a NIC has no queue beside what it sends at once
        self._wire = (self._sizes * byte_time[first]) >> BYTE_TIME_BITS
        return made

    def send_due(self, network: Network, now: int) -> None:
        """Send what is due by now."""
        while self.next_at <= now:
            begin = self._round * self.period
            behind = int(np.searchsorted(self._at, now - begin, side="right"))
            numbers = self._turns[self._next : behind]
            self.send(network, now, numbers[~self.muted[numbers]])
            self._next = behind
            if behind == len(self._at):
                self._round, self._next = self._round + 1, 0

    def send(self, network: Network, now: int, numbers: Ints) -> None:
        """Send these now, each as often as it is named; what is late by now will not be waited for."""
        column(network.probes, "out")[numbers[self.sent_at[numbers] <= now - self._late[numbers]]] = 0
        rows, copies = np.unique(numbers, return_counts=True)
        column(network.probes, "due")[rows] = now + self._full[rows] + copies * self._wire[rows]
        for size in np.unique(self._sizes[numbers]).tolist():
            service = Service.DATA if size > SMALL else Service.CONTROL
            window.send_probes(network, now, numbers[self._sizes[numbers] == size], size, service)
        self.sent_at[numbers] = now

    def waits(self, network: Network, now: int) -> npt.NDArray[np.bool_]:
        """Return which probes are on their way."""
        return np.asarray((column(network.probes, "out") > 0) & (self.sent_at > now - self._late))

    def outcomes(self, network: Network, now: int) -> Ints:
        """Return (known, lost, late) of each probe since the last call: what is sent at once is known at once."""
        sent, arrived, late = (column(network.probes, name).astype(np.int64) for name in ("sent", "arrived", "late"))
        more = (np.array([sent, sent - arrived, late]) - self._known) * ~self.waits(network, now)
        self._known += more
        return more
