"""A plane stops with its interface: carrier, address and MTU, in a network namespace of the test's own."""

from __future__ import annotations

import pytest

from tests.live.host.in_namespace import needs_namespaces, run
from tests.live.host.test_interfaces import VETH

PAIR = """
import time
from openmrc.verbs import *
from harness.live_pair import SMALL
import threading

def until(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.001)

def up(context):
    return [plane.up for plane in context.plane_counters()]

first, second = Context(["10.0.0.1", "127.77.0.1"], SMALL), Context(["10.0.9.1", "127.77.0.2"], SMALL)
region, target = (each.alloc_pd().reg_mr(bytearray(1 << 16)) for each in (first, second))
options = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64)
listener, accepted = Listener(second, "127.0.0.1", 0), []
thread = threading.Thread(
    target=lambda: accepted.append(listener.accept(regions=[target], options=options, timeout=60))
)
thread.start()
here = connect(first, "127.0.0.1", listener.port, regions=[region], options=options, timeout=60)
thread.join()

def write():
    here.write(region, here.remote.regions[0], timeout=30)

def plane_0_goes(why, back):
    ip(why)
    until(lambda: up(first) == [False, True], why)
    until(lambda: any(e.kind == AsyncEventKind.PEER_PORTS for e in second.poll_async_events()), "told the peer")
    before = first.plane_counters()[0].sent_packets
    write()
    assert first.plane_counters()[0].sent_packets == before
    for line in back:
        ip(line)
    until(lambda: up(first) == [True, True], back)
    write()
write()
"""
CLOSE = "here.close(); accepted[0].close(); first.close(); second.close()\n"
OTHER = ("link add vb type veth peer name vy", "link set vb up", "link set vy up", "address add 10.0.9.1/24 dev vb")

pytestmark = needs_namespaces


@pytest.mark.parametrize(
    ("fault", "repair"),
    [
        ("link set vx down", ["link set vx up"]),
        ("link set va down", ["link set va up"]),
        ("address del 10.0.0.1/24 dev va", ["address add 10.0.0.1/24 dev va"]),
        ("link set va mtu 700", ["link set va mtu 1500"]),
    ],
    ids=["carrier", "switched off", "address", "mtu"],
)
def test_a_plane_stops_with_its_interface_and_returns_with_it(fault: str, repair: list[str]) -> None:
    run(PAIR + f"plane_0_goes({fault!r}, {repair!r})\n" + CLOSE, *VETH, *OTHER)


def test_a_plane_without_carrier_at_the_start_is_down_until_it_has_one() -> None:
    run(
        "import time\nfrom openmrc.verbs import *\nfrom harness.live_pair import SMALL\n"
        "context = Context(['10.0.0.1', '127.77.0.1'], SMALL)\n"
        "assert [p.up for p in context.plane_counters()] == [False, True]\n"
        "context.set_plane(0, False)\nip('link set vx up')\ntime.sleep(0.2)\n"
        "assert not context.plane_counters()[0].up, 'switched off by the program'\n"
        "context.set_plane(0, True)\n"
        "assert context.plane_counters()[0].up\ncontext.close()\n",
        *VETH,
        "link set vx down",
    )
