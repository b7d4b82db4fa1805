"""The health of a group: which ranks it waits for, which are gone, what takes too long; and the errors about it.

A rank that only waits sends probes, empty writes: they exhaust its retry budget if the peer is gone, so waits end.
"""

from openmrc.train.errors import CollectiveTimeoutError, RankLostError, from_peer
from openmrc.train.execution.collectives import CollectiveQueue
from openmrc.train.execution.endpoint import GroupEndpoint, GroupTerms
from openmrc.train.execution.point_to_point import ANY_SOURCE, PointToPoint, Transfer
from openmrc.train.execution.queued import QueuedRun
from openmrc.train.links import mesh
from openmrc.train.links.frames import ControlFrame, FrameKind
from openmrc.train.links.mailbox import RankLink

PROBE_SECONDS = 1.0  # between probes of one rank
_SLOW_SECONDS = 5.0  # s after which a collective is slow


class GroupHealth:
    """Checks what one rank waits for."""

    def __init__(
        self, terms: GroupTerms, endpoint: GroupEndpoint, collectives: CollectiveQueue, p2p: PointToPoint
    ) -> None:
        self._rank, self._name = terms.rank, terms.name
        self.timeout = terms.timeout  # s, of each collective, send and receive
        self._endpoint, self._collectives, self._p2p = endpoint, collectives, p2p
        self._probed_at: dict[int, float] = {}
        self._reported = 0  # sequence of the latest collective reported to be slow

    def check(self, now: float) -> None:
        """Probe awaited ranks and report a slow collective; raise what ends the group. `now` in monotonic seconds."""
        self._listen(now)
        waited_for = self._waited_for()
        for rank in waited_for:
            link = self._endpoint.links[rank]
            if not link.bye_at and self._endpoint.liveness.is_gone(rank, now):
                raise self.lost_error(rank, "its process has ended")
            if link.has_left(now):
                raise RankLostError(
                    f"rank {self._rank}: rank {rank} has closed group {self._name}, {self._operation_text()}"
                )
            if now - self._probed_at.get(rank, 0.0) >= PROBE_SECONDS:
                self._probed_at[rank] = now
                link.probe()
        run = self._collectives.first
        if run is not None and run.begun_at:
            self._watch(run, now - run.begun_at)
        late = next((each for each in self._p2p.unfinished() if now - each.begun_at > self.timeout), None)
        if late is not None:
            raise self._transfer_timeout_error(late)

    def on_state(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Record what another rank reports about its slow collective, and compare the call."""
        text = bytes(data).decode(errors="replace")
        link.reported_state = f"in collective {frame.sequence}, {frame.describe()}, {text}"
        self._collectives.check_state(link, frame)

    def lost_error(self, rank: int, cause: str) -> RankLostError:
        """Return the error that a rank is lost."""
        return RankLostError(f"rank {self._rank}: rank {rank} is lost, {self._operation_text()}: {cause}")

    def _listen(self, now: float) -> None:
        """Process what arrived on the control connections."""
        for rank, notice in self._endpoint.liveness.heard(now):
            if notice is not None and notice.error:
                raise from_peer(rank, notice.error)
            if notice is not None:
                link = self._endpoint.links[rank]
                link.bye_at = link.bye_at or now

    def _waited_for(self) -> set[int]:
        ranks = {transfer.peer for transfer in self._p2p.unfinished()} - {ANY_SOURCE}
        run = self._collectives.first
        return ranks if run is None else ranks.union(run.waiting_for())

    def _watch(self, run: QueuedRun, seconds: float) -> None:
        if seconds > self.timeout:
            raise self._timeout_error(run)
        if run.sequence != self._reported and seconds >= min(_SLOW_SECONDS, self.timeout / 3):
            self._reported = run.sequence
            self._send_state(run)

    def _send_state(self, run: QueuedRun) -> None:
        """Send the state of a slow collective to all ranks, for their errors and to detect mismatched calls."""
        text = f"waiting for {mesh.ranks_text(run.waiting_for())}; {run.progress_text()}".encode()
        frame = run.call.frame(run.sequence, run.call.count, len(text))._replace(kind=FrameKind.STATE)
        for link in self._endpoint.links.values():
            if link.can_send:
                link.send(frame, text)

    def _operation_text(self) -> str:
        run = self._collectives.first
        if run is not None:
            return f"during collective {run.sequence}, {run.call.describe()} ({run.progress_text()})"
        transfer = next(iter(self._p2p.unfinished()), None)
        if transfer is None:
            return "while no operation was in progress"
        return f"during a {transfer.kind} of {transfer.length:,} bytes with tag {transfer.tag}"

    def _timeout_error(self, run: QueuedRun) -> CollectiveTimeoutError:
        late = "; ".join(self._rank_text(rank) for rank in run.waiting_for())
        return CollectiveTimeoutError(
            f"rank {self._rank}: collective {run.sequence}, {run.call.describe()}, did not finish within the timeout "
            f"of {self.timeout:g} s ({run.progress_text()}); waiting for {late or 'no rank'}"
        )

    def _transfer_timeout_error(self, transfer: Transfer) -> CollectiveTimeoutError:
        who = self._rank_text(transfer.peer) if transfer.peer != ANY_SOURCE else "any rank"
        return CollectiveTimeoutError(
            f"rank {self._rank}: {transfer.kind} of {transfer.length:,} bytes with tag {transfer.tag} did not finish "
            f"within {self.timeout:g} s; waiting for {who}"
        )

    def _rank_text(self, rank: int) -> str:
        link = self._endpoint.links[rank]
        return f"rank {rank} ({link.reported_state or 'no state reported'}; {link.qp.describe()})"
