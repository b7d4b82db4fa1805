"""Adapter of this package's endpoint: `python -m openmrc.conform.adapters.endpoint`.

It plays the contract of `devices.contract` over stdin and stdout with the application API, as an adapter of another
implementation would with its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import msgspec

from openmrc.conform.devices.contract import Description, DeviceEvent, Wanted, WriteOrder, answer_to, pattern, tell
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

LARGEST_WRITE = 1 << 21  # bytes
MAX_SENDS = 512
FIRST_PSN = 0x00_5000
_KINDS: tuple[Literal["completion", "receive"], ...] = ("completion", "receive")  # of the two queues


@dataclass
class _OpenDevice:
    """A queue pair with what it needs."""

    context: Context
    channel: CompletionChannel
    cqs: tuple[CompletionQueue, CompletionQueue]  # of sends, of receives
    qp: QueuePair
    region: MemoryRegion
    source: MemoryRegion
    wanted: Wanted
    remote_addr: int = 0
    remote_key: int = 0


class EndpointAdapter:
    """Serves the tester's requests, one queue pair at a time."""

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
            max_qp=1,
            evs_per_plane=wanted.evs,
            max_wimm=wanted.max_wimm,
            max_mpr=wanted.mpr,
            max_send_wr=MAX_SENDS,
            max_recv_wr=max(wanted.receives, 1),
            mtu=wanted.mtu,
            seed=1,
        )
        context = Context((self._planes or own_loopback(wanted.planes))[: wanted.planes], attr)
        channel = context.create_comp_channel()
        cqs = context.create_cq(2 * MAX_SENDS, channel=channel), context.create_cq(4096, channel=channel)
        pd = context.alloc_pd()
        init = QpInitAttr(
            send_cq=cqs[0], recv_cq=cqs[1], max_send_wr=MAX_SENDS, max_recv_wr=max(wanted.receives, 1), sq_sig_all=True
        )
        qp = context.create_qp(pd, init)
        access = Access.REMOTE_WRITE if wanted.writable else Access.LOCAL_WRITE
        region = pd.reg_mr(bytearray(wanted.bytes), access)
        self._device = _OpenDevice(
            context, channel, cqs, qp, region, pd.reg_mr(bytearray(LARGEST_WRITE), Access.LOCAL_WRITE), wanted
        )
        for cq in cqs:
            cq.notify()
        return wanted.description(
            device=f"openmrc {version('openmrc')}",
            planes=list(context.query_device().planes),
            qpn=qp.qpn,
            psn=self._first_psn(wanted),
            addr=region.addr,
            r_key=region.r_key,
        )

    def _first_psn(self, wanted: Wanted) -> int:
        return FIRST_PSN if wanted.first_psn is None else wanted.first_psn

    def connect(self, peer: Description) -> None:
        device = self._up()
        qp, wanted = device.qp, device.wanted
        device.remote_addr, device.remote_key = peer.addr, peer.r_key
        cap = QpCap(0) if peer.trim_nack else QpCap.TRIM_NACK_DEST_UNSUPPORTED
        if wanted.dynamic_mpr and peer.dynamic_mpr:
            cap |= QpCap.DYNAMIC_MPR
        qp.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE)
        qp.modify(
            state=QpState.RTR,
            remote=PeerAddress(planes=tuple(peer.planes)),
            dest_qpn=peer.qpn,
            rq_psn=peer.psn,
            path_mtu=min(wanted.mtu, peer.mtu),
            max_wimm_dest=wanted.max_wimm,
            mpr=wanted.mpr,
            mpr_dest=min(peer.mpr, wanted.mpr),
            cap=cap,
        )
        qp.post_recv([RecvWr(wr_id=number) for number in range(wanted.receives)])
        qp.modify(
            state=QpState.RTS,
            sq_psn=self._first_psn(wanted),
            max_wimm=min(peer.max_wimm, wanted.max_wimm),
            mpr=wanted.mpr,
            timeout=wanted.timeout,
            linear_count=wanted.linear,
            exponential_count=wanted.exponential,
        )

    def write(self, order: WriteOrder) -> None:
        device = self._up()
        device.source.bytes[: order.length] = memoryview(pattern(order.offset, order.length, order.fill))
        for _ in range(order.count):
            device.qp.post_write(
                device.source[: order.length],
                device.remote_addr + order.offset,
                device.remote_key,
                immediate=order.immediate,
            )

    def memory(self, offset: int, length: int) -> bytes:
        return bytes(self._up().region.bytes[offset : offset + length])

    def set_port(self, plane: int, up: bool) -> None:
        self._up().context.set_plane(plane, up)

    def _report(self, device: _OpenDevice) -> None:
        with contextlib.suppress(Exception):  # woken for nothing
            device.channel.get_event(0.0)
        for cq, kind in zip(device.cqs, _KINDS, strict=True):
            cq.notify()
            while done := cq.poll():
                for each in done:
                    event = DeviceEvent(
                        event=kind, status=each.status.name, immediate=each.immediate, length=each.byte_len
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
