"""Adapter of this package's endpoint: `python -m openmrc.conform.adapters.endpoint`.

It plays the contract of `devices.contract` over stdin and stdout with the application API, as an adapter of another
implementation would with its own.
"""

import argparse
import contextlib
import os
import select
import signal
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import msgspec

from openmrc.conform.devices.contract import (
    LARGEST_WRITE,
    MOST_WRITES,
    Description,
    DeviceEvent,
    DeviceUnsupportedError,
    PairEnd,
    ProfileOrder,
    Wanted,
    WriteOrder,
    answer_to,
    pattern,
    tell,
)
from openmrc.verbs import (
    Access,
    CompletionChannel,
    CompletionQueue,
    Context,
    ContextAttr,
    MemoryRegion,
    PeerAddress,
    QpCap,
    QpInitAttr,
    QpState,
    QueuePair,
    RecvWr,
)
from openmrc.wire.codes import UDP_PORT

_KINDS: tuple[Literal["completion", "receive"], ...] = ("completion", "receive")  # of the two queues


@dataclass
class _OpenPair:
    """A queue pair, and its region."""

    qp: QueuePair
    region: MemoryRegion
    source: MemoryRegion
    remote: PairEnd | None = None


@dataclass
class _OpenDevice:
    """Queue pairs with what they need."""

    context: Context
    channel: CompletionChannel
    cqs: tuple[CompletionQueue, CompletionQueue]  # of sends, of receives
    pairs: list[_OpenPair]
    wanted: Wanted


class EndpointAdapter:
    """Serves the tester's requests, those of one test at a time."""

    def __init__(self, planes: list[str]) -> None:
        """Use these local addresses; none: addresses of this process's own on the loopback."""
        self._planes = planes
        self._device: _OpenDevice | None = None

    def serve(self) -> None:
        """Serve until stdin ends."""
        waiting = b""
        while True:
            device = self._device
            channel = [] if device is None else [device.channel.fileno()]
            ready, _, _ = select.select([0, *channel], [], [])
            if device is not None and channel[0] in ready:
                self._report(device)
            if 0 in ready:
                part = os.read(0, 1 << 16)
                if not part:
                    break
                waiting += part
                *lines, waiting = waiting.split(b"\n")
                for line in lines:
                    tell(answer_to(msgspec.json.decode(line), self))
        self.close()

    def _up(self) -> _OpenDevice:
        if self._device is None:
            raise SystemExit("not open")
        return self._device

    def open(self, wanted: Wanted) -> Description:
        self.close()
        attr = ContextAttr(
            max_qp=wanted.pairs,
            evs_per_plane=wanted.evs,
            max_wimm=wanted.max_wimm,
            max_mpr=wanted.mpr,
            max_send_wr=MOST_WRITES,
            max_recv_wr=max(wanted.receives, 1),
            mtu=wanted.mtu,
            seed=1,
        )
        context = Context((self._planes or own_loopback(wanted.planes))[: wanted.planes], attr)
        channel = context.create_comp_channel()
        cqs = context.create_cq(2 * MOST_WRITES, channel=channel), context.create_cq(4096, channel=channel)
        init = QpInitAttr(
            send_cq=cqs[0],
            recv_cq=cqs[1],
            max_send_wr=MOST_WRITES,
            max_recv_wr=max(wanted.receives, 1),
            sq_sig_all=True,
        )
        access = Access.REMOTE_WRITE if wanted.writable else Access.LOCAL_WRITE
        pairs = []
        for _ in range(wanted.pairs):
            pd = context.alloc_pd()
            source = pd.reg_mr(bytearray(LARGEST_WRITE), Access.LOCAL_WRITE)
            pairs.append(_OpenPair(context.create_qp(pd, init), pd.reg_mr(bytearray(wanted.bytes), access), source))
        self._device = _OpenDevice(context, channel, cqs, pairs, wanted)
        for cq in cqs:
            cq.notify()
        return self._described(self._device)

    def _described(self, device: _OpenDevice) -> Description:
        psn = device.wanted.psn
        ends = [
            PairEnd(qpn=pair.qp.qpn, psn=psn, addr=pair.region.addr, r_key=pair.region.r_key) for pair in device.pairs
        ]
        planes = list(device.context.query_device().planes)
        return device.wanted.description(f"openmrc {version('openmrc')}", planes, ends)

    def reset(self) -> Description:
        device = self._up()
        device.pairs[0].qp.modify(state=QpState.RESET)
        return self._described(device)

    def connect(self, peer: Description) -> None:
        for pair, end in zip(self._up().pairs, peer.pairs(), strict=True):
            pair.remote = end
            self._connect(pair.qp, end, peer)

    def _connect(self, qp: QueuePair, end: PairEnd, peer: Description) -> None:
        wanted = self._up().wanted
        cap = QpCap(0) if peer.trim_nack else QpCap.TRIM_NACK_DEST_UNSUPPORTED
        if wanted.dynamic_mpr and peer.dynamic_mpr:
            cap |= QpCap.DYNAMIC_MPR
        qp.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE)
        qp.modify(
            state=QpState.RTR,
            remote=PeerAddress(planes=tuple(peer.planes)),
            dest_qpn=end.qpn,
            rq_psn=end.psn,
            path_mtu=min(wanted.mtu, peer.mtu),
            max_wimm_dest=wanted.max_wimm,
            mpr=wanted.mpr,
            mpr_dest=min(peer.mpr, wanted.mpr),
            cap=cap,
        )
        qp.post_recv([RecvWr(wr_id=number) for number in range(wanted.receives)])
        qp.modify(
            state=QpState.RTS,
            sq_psn=wanted.psn,
            max_wimm=min(peer.max_wimm, wanted.max_wimm),
            mpr=wanted.mpr,
            timeout=wanted.timeout,
            linear_count=wanted.linear,
            exponential_count=wanted.exponential,
        )

    def write(self, order: WriteOrder) -> None:
        pair = self._up().pairs[order.pair]
        if pair.remote is None:
            raise SystemExit("not connected")
        pair.source.bytes[: order.length] = memoryview(pattern(order.offset, order.length, order.fill))
        for _ in range(order.count):
            pair.qp.post_write(
                pair.source[: order.length],
                pair.remote.addr + order.offset,
                pair.remote.r_key,
                immediate=order.immediate,
            )

    def memory(self, offset: int, length: int, pair: int = 0) -> bytes:
        return bytes(self._up().pairs[pair].region.bytes[offset : offset + length])

    def set_port(self, plane: int, up: bool) -> None:
        self._up().context.set_plane(plane, up)

    def profile(self, order: ProfileOrder) -> str:
        raise DeviceUnsupportedError("an EV profile chooses among the EVs of this endpoint's sockets, no others")

    def _report(self, device: _OpenDevice) -> None:
        with contextlib.suppress(Exception):  # woken for nothing
            device.channel.get_event(0.0)
        for cq, kind in zip(device.cqs, _KINDS, strict=True):
            cq.notify()
            while done := cq.poll():
                for each in done:
                    pair = next((n for n, one in enumerate(device.pairs) if one.qp.qpn == each.qp_num), 0)
                    event = DeviceEvent(
                        event=kind, status=each.status.name, immediate=each.immediate, length=each.byte_len, pair=pair
                    )
                    tell(event)

    def close(self) -> None:
        if self._device is not None:
            self._device.context.close()
            self._device = None


def own_loopback(planes: int) -> list[str]:
    """Return loopback addresses that no other process uses: their middle bytes are the process's number."""
    high, low = divmod(os.getpid() & 0x3FFF, 256)
    return [f"127.{64 + high}.{low}.{1 + plane}:{UDP_PORT}" for plane in range(planes)]


def main() -> None:
    """Read the options and serve."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plane", action="append", default=[], help="local address of a plane; may be repeated")
    given = options.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the tester, too, which then ends this process
    EndpointAdapter(given.plane).serve()


if __name__ == "__main__":
    main()
