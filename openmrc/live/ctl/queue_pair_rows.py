"""The rows of the engine that are queue pairs of a NIC: which are taken, and what each and its peer are called."""

import threading
from collections.abc import Iterator

from openmrc.core.rows import column
from openmrc.engine.state.machines import QpState
from openmrc.live.attributes import PeerAddress
from openmrc.live.host.peers import Peers
from openmrc.live.host.runtime import EndpointRuntime


class QueuePairRows:
    def __init__(self, runtime: EndpointRuntime, peers: Peers, count: int) -> None:
        self.peers = peers
        self._runtime = runtime
        self._used: set[int] = set()
        self._free = list(reversed(range(count)))
        self._lock = threading.Lock()  # of the free rows; the event loop reads none of them
        self._qpn = column(runtime.engine.qps, "qpn").item  # a tenth of the time of a row's attribute

    def take(self) -> int | None:
        """Take a row; None if there is none left."""
        with self._lock:
            if not self._free:
                return None
            row = self._free.pop()
            self._used.add(row)
            return row

    def leave(self, row: int) -> None:
        """Count a row as no queue pair's any longer; it is not free yet."""
        self._used.discard(row)

    def give_back(self, row: int) -> None:
        """Make a row free that was left."""
        with self._lock:
            self._free.append(row)

    def used(self) -> list[int]:
        return sorted(self._used)

    def qpn(self, row: int) -> int:
        """Return the number of a queue pair; it changes with every RESET."""
        return int(self._qpn(row))

    def state(self, row: int) -> QpState:
        return QpState(self._runtime.engine.qps[row].state)

    def peer(self, row: int) -> PeerAddress | None:
        """Return the peer of a queue pair, if it has one."""
        return self.peers.address(int(self._runtime.engine.qps[row].peer))

    def connected(self) -> Iterator[tuple[int, PeerAddress]]:
        for row in self.used():
            if self.state(row) not in (QpState.RESET, QpState.INIT) and (peer := self.peer(row)) is not None:
                yield row, peer
