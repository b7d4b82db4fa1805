"""How long does a packet spend in the relay of `mrc conform`? One way, against the same packet without a relay.

    python -m bench.conform.relay [--packets 2000] [--bytes 1024] [--burst 1]

A child process sends datagrams of MRC from one UDP socket to another, in turns straight and through the relay, one
burst a millisecond; the kernel's time of arrival at the receiver counts. Without rules, and with one about a PSN, each
with a relay that polls before it sleeps, as `mrc conform` does, and with one that always sleeps.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import struct
import time
from ipaddress import ip_address
from multiprocessing.connection import Connection

from openmrc.conform.conversation import ConversationEnds, TestConversation
from openmrc.conform.datagrams import TapLink, seal
from openmrc.conform.devices.contract import Description, Wanted
from openmrc.conform.media.medium import LONGEST_POLL
from openmrc.conform.media.sockets import SocketMedium, own_loopback
from openmrc.conform.parsing import parse_tests
from openmrc.conform.relay import Relay
from openmrc.wire.codes import UDP_PORT, Opcode
from openmrc.wire.entropy import SRV6_PORT_BASE
from openmrc.wire.message import compose

TURNS = 4  # straight and relayed, each so often
GAP = 0.001  # s between bursts
SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("qq")
RULE = "test 1/1 retransmission must both\n    Rule.\n    device planes=1\n: drop WRITE psn=8388608\n"


def main() -> None:
    """Read the options and measure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--packets", type=int, default=2000)
    options.add_argument("--bytes", type=int, default=1024)
    options.add_argument("--burst", type=int, default=1)
    chosen = options.parse_args()
    print(f"{chosen.packets} packets of {chosen.bytes} bytes, bursts of {chosen.burst}; microseconds, one way")
    for name, script in (("no rule", ""), ("a rule about a PSN", RULE)):
        for waits, longest_poll in (("polls", LONGEST_POLL), ("sleeps", 0)):
            straight, relayed = measure(chosen.packets, chosen.bytes, chosen.burst, script, longest_poll)
            for kind, took in (("straight", straight), ("relayed", relayed)):
                shown = f"median {at(took, 0.5):7.1f}  p90 {at(took, 0.9):7.1f}  lost {lost(took)}"
                print(f"{name:<20} {waits:<7} {kind:<9} {shown}")
            print(f"{name:<20} {waits:<7} adds      median {at(relayed, 0.5) - at(straight, 0.5):7.1f}")


def at(values: list[float], share: float) -> float:
    """Return a quantile (us)."""
    known = sorted(value for value in values if value >= 0)
    return known[min(int(len(known) * share), len(known) - 1)] * 1e6


def lost(values: list[float]) -> int:
    """Return how many did not arrive."""
    return sum(1 for value in values if value < 0)


def measure(packets: int, size: int, burst: int, script: str, longest_poll: int) -> tuple[list[float], list[float]]:
    """Return the times of arrival after departure (s), straight and relayed; -1 for what was lost."""
    here = own_loopback(1)
    prefix = here[0][0].rpartition(".")[0]
    ends = [f"{prefix}.{241 + side}:{UDP_PORT}" for side in range(2)]
    medium = SocketMedium(here, [], longest_poll)
    for side, end in enumerate(ends):
        medium.meet(side, [end])
    descriptions = [_description(end) for end in ends]
    talk = TestConversation(medium, [], Wanted(), ConversationEnds(*descriptions), descriptions, descriptions)
    relay = Relay(talk)
    if script:
        (test,) = parse_tests(script, "rule")
        relay.add(test.steps[0])
    mine, its = multiprocessing.Pipe()
    tap = here[0][0].partition(":")[0]
    child = multiprocessing.Process(target=_play, args=(its, ends, tap, packets, size, burst))
    child.start()
    while not mine.poll():
        talk.pump(medium.now() + 2_000_000, relay.serve)
    result: tuple[list[float], list[float]] = mine.recv()
    child.join()
    medium.close()
    return result


def _description(end: str) -> Description:
    return Description(planes=[end], qpn=3, psn=0, addr=0, r_key=1, length=1, mtu=1024, mpr=8, max_wimm=1)


def _play(pipe: Connection, ends: list[str], tap: str, packets: int, size: int, burst: int) -> None:
    """Be both devices: send, receive, and tell how long each packet took."""
    sender, receiver = (_socket(end) for end in ends)
    sender.bind((ends[0].partition(":")[0], SRV6_PORT_BASE))
    receiver.bind((ends[1].partition(":")[0], UDP_PORT))
    receiver.settimeout(1.0)
    found: tuple[list[float], list[float]] = [], []
    for turn in range(2 * TURNS):
        there = tap if turn % 2 else ends[1].partition(":")[0]
        body = seal(_packet(size), SRV6_PORT_BASE, TapLink(ip_address(ends[0].partition(":")[0]), ip_address(there)))
        for _ in range(packets // TURNS // burst):
            time.sleep(GAP)
            found[turn % 2].extend(_burst(sender, receiver, body, (there, UDP_PORT), burst))
    pipe.send(found)


def _packet(size: int) -> bytes:
    return compose(Opcode.WRITE_ONLY, bytes(size), bth={"dqp": 3, "ts": 1}).emit()


def _burst(
    sender: socket.socket, receiver: socket.socket, body: bytes, there: tuple[str, int], count: int
) -> list[float]:
    begun = []
    for _ in range(count):
        begun.append(time.time())
        sender.sendto(body, there)
    took = []
    for at_ in begun:
        try:
            _, ancillary, _, _ = receiver.recvmsg(1 << 16, 256)
        except TimeoutError:
            took.append(-1.0)
            continue
        seconds, rest = TIMESPEC.unpack(ancillary[0][2][: TIMESPEC.size])
        took.append(seconds + rest / 1e9 - at_)
    return took


def _socket(end: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return sock


if __name__ == "__main__":
    main()
