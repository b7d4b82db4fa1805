"""Round robin as plain lists: what `engine.scheduler` does with rings linked through rows."""

from __future__ import annotations

from collections import deque


class Rings:
    """A queue of peers, and of queue pairs for each peer; the front is served next."""

    def __init__(self, peers: int) -> None:
        self.peers: deque[int] = deque()
        self.qps: list[deque[int]] = [deque() for _ in range(peers)]

    def wake(self, peer: int, qp: int) -> None:
        if qp not in self.qps[peer]:
            self.qps[peer].append(qp)
        self.wake_peer(peer)

    def wake_peer(self, peer: int) -> None:
        if self.qps[peer] and peer not in self.peers:
            self.peers.append(peer)

    def turn_peers(self) -> None:
        self.peers.rotate(-1)

    def drop_front_peer(self) -> None:
        self.peers.popleft()

    def turn_qps(self, peer: int) -> None:
        self.qps[peer].rotate(-1)

    def drop_front_qp(self, peer: int) -> None:
        self.qps[peer].popleft()

    def forget(self, peer: int, qp: int) -> None:
        """Taking one out turns the ring up to where it stood."""
        ring = self.qps[peer]
        if qp in ring:
            ring.rotate(-ring.index(qp))
            ring.popleft()
