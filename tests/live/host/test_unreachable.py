"""A peer whose sockets are closed: what its kernel answers, and why the endpoint does not ask to be told."""

from __future__ import annotations

import select
import socket
import threading
import time
from pathlib import Path

import pytest

from harness.live_pair import SMALL, addresses, joined
from openmrc.verbs import ConnectionOptions, Context, Listener, WcStatus, connect

pytestmark = pytest.mark.needs("jit")
_IP_RECVERR = 11
OPTIONS = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64, timeout=13, user_timeout=6.0)


def refusals() -> int:
    """Return how many messages of unreachable destinations this host has received."""
    names, values = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Icmp:")
    )
    return int(values[names.index("InDestUnreachs")])


@pytest.mark.parametrize("asks", [False, True])
def test_a_socket_that_asks_for_errors_fails_the_next_send_to_anyone(asks: bool) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sender, socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        other.settimeout(2)
        if asks:
            sender.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        with socket.socket(type=socket.SOCK_DGRAM) as gone:
            gone.bind(("127.0.0.1", 0))
            closed = gone.getsockname()
        before = refusals()
        sender.sendto(b"to nobody", closed)
        if asks:  # the counter is the host's: another test's refusal may move it
            errors = select.poll()
            errors.register(sender, 0)
            assert errors.poll(5000)
            with pytest.raises(ConnectionRefusedError):
                sender.sendto(b"to the other", other.getsockname())
        until = time.monotonic() + 5
        while refusals() == before:
            assert time.monotonic() < until
            time.sleep(0.001)
        sender.sendto(b"again", other.getsockname())
        assert other.recv(100) == b"again"


def test_a_peer_that_is_gone_is_asked_often_and_disturbs_nobody_else() -> None:
    with joined(options=OPTIONS) as pair:
        here = pair.contexts[0]
        with Context(addresses(2, 249, 2, 4), SMALL) as gone, Listener(gone, "127.0.0.1", 0) as listener:
            thread = threading.Thread(target=lambda: listener.accept(options=OPTIONS, timeout=20))
            thread.start()
            region = here.alloc_pd().reg_mr(bytearray(1 << 16))
            lost = connect(here, "127.0.0.1", listener.port, regions=[region], options=OPTIONS, timeout=20)
            thread.join()
        before = refusals()
        lost.qp.post_write(region, 1, 1)
        until = time.monotonic() + 5.0  # before the user timeout
        while refusals() - before < 20:  # retransmissions, then probes every 50 ms at least
            assert time.monotonic() < until
            done = pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=5)
            assert done.status is WcStatus.SUCCESS
        assert not any(plane.send_errors for plane in here.plane_counters())
        assert lost.qp.outstanding() == 1  # no verdict: only the user timeout ends it
