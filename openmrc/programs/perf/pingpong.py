"""The latency test: round trips of single writes with immediate."""

import statistics
import time
from collections.abc import Sequence

from openmrc.programs.endpoint.conversation import Conversation
from openmrc.programs.perf.words import Done, Tick
from openmrc.verbs import MemoryRegion, SendWr

POSTED_AHEAD = 16  # receives
REFILL = 8  # of them that are posted in one call
TICK = 1.0  # s


def distribution(times: Sequence[float]) -> dict[str, float]:
    """Return perftest's figures of round trips (us, at least one), halved; percentiles are nearest ranks."""
    ranked = sorted(times)
    last = len(ranked) - 1
    found = {
        "t_min": ranked[0],
        "t_max": ranked[-1],
        "t_typical": statistics.median(ranked),
        "t_avg": statistics.fmean(ranked),
        "t_stdev": statistics.pstdev(ranked),
        "t_99": ranked[min(last, round(0.99 * last))],
        "t_99_9": ranked[min(last, round(0.999 * last))],
    }
    return {name: round(value / 2, 3) for name, value in found.items()}


class PingPong:
    """One run of round trips on one queue pair."""

    def __init__(self, conversation: Conversation, local: MemoryRegion, size: int) -> None:
        self._conversation = conversation
        self._connection = conversation.connection
        self._local = local[:size]
        self._taken = 0  # receives since the last refill
        remote = self._connection.remote.regions[0]
        self._size = size
        self._request = SendWr(
            local=self._local, remote_addr=remote.addr, r_key=remote.r_key, immediate=size & 0xFFFFFFFF, signaled=False
        )

    def serve(self, iterations: int, duration: float) -> list[float]:
        """Write first and wait for the reply; return the round-trip times in microseconds."""
        times: list[float] = []
        began = ticked = time.perf_counter()
        while not self._is_over(len(times), iterations, began, duration):
            sent = time.perf_counter()
            self._write()
            if not self._conversation.wait(self._connection.recv_cq, self._conversation.timeout, 1):
                raise self._conversation.stalled()
            now = time.perf_counter()
            times.append((now - sent) * 1e6)
            self._taken += 1
            self._post_receives(REFILL)
            if now - ticked > TICK:
                ticked = now
                self._conversation.tell(Tick(len(times) * self._size))
        self._post_receives(1)
        self._conversation.tell(Done(len(times), len(times) * self._size, time.perf_counter() - began, 0.0))
        return times

    def answer(self) -> None:
        """Answer every write until the peer is done."""
        while True:
            while self._conversation.has_message():
                if isinstance(self._conversation.hear(object), Done):
                    self._post_receives(1)
                    return
            found = self._conversation.wait(self._connection.recv_cq, self._conversation.timeout, 1, or_message=True)
            if found:
                self._write()
                self._taken += 1
                self._post_receives(REFILL)
            elif not self._conversation.has_message():
                raise self._conversation.stalled()

    def _write(self) -> None:
        self._connection.qp.post_send(self._request)

    def _post_receives(self, least: int) -> None:
        """Post as many receives as were taken, if they are at least so many."""
        if self._taken >= least:
            self._connection.qp.post_recv(self._taken)
            self._taken = 0

    @staticmethod
    def _is_over(count: int, iterations: int, began: float, duration: float) -> bool:
        if duration:
            return count > 0 and time.perf_counter() - began >= duration
        return count >= iterations
