"""A plain RoCEv2 sender as a device under test, the negative control: `mrc conform --device rocev2`.

It speaks the contract of adapters, but its packets are those of RoCEv2's reliable connection (a test compares them with
scapy's), and it answers none. A tester that lets it pass tests nothing.
"""

import json
import signal
import socket
import sys
from ipaddress import IPv4Address
from typing import Any

from openmrc.conform.adapters.endpoint import own_loopback
from openmrc.conform.datagrams import TapLink, seal
from openmrc.conform.devices.contract import pattern
from openmrc.wire.codes import UDP_PORT

RC_WRITE_ONLY = 0x0A
QPN, PSN, R_KEY, ADDR = 0x11, 0x5000, 0x1234, 0x10_0000
P_KEY, ACK_REQUEST, SOURCE_PORT = 0xFFFF, 1 << 31, 0xC000


def open_queue_pair(wanted: dict[str, Any]) -> dict[str, Any]:
    """Describe a queue pair that does not exist."""
    return {
        "device": "RoCEv2 sender",
        "planes": own_loopback(wanted["planes"]),
        "qpn": QPN,
        "psn": PSN,
        "addr": ADDR,
        "r_key": R_KEY,
        "length": wanted["bytes"],
        "mtu": wanted["mtu"],
        "mpr": wanted["mpr"],
        "max_wimm": wanted["max_wimm"],
        "trim_nack": False,
    }


def datagrams(ours: dict[str, Any], peer: dict[str, Any], order: dict[str, Any]) -> list[bytes]:
    """Return RC write packets: BTH, RETH, payload, ICRC; no METH, no path selection (IBTA 9.2, 9.3.4)."""
    link = TapLink(_address(ours), _address(peer))
    length = min(order["length"], peer["mtu"])
    reth = peer["addr"].to_bytes(8, "big") + peer["r_key"].to_bytes(4, "big") + length.to_bytes(4, "big")
    payload = pattern(order.get("offset", 0), length, order.get("fill", 1)) + bytes(-length % 4)
    found = []
    for number in range(order.get("count", 1)):
        start = bytes([RC_WRITE_ONLY, (-length % 4) << 4]) + P_KEY.to_bytes(2, "big")
        bth = start + peer["qpn"].to_bytes(4, "big") + (ACK_REQUEST | PSN + number).to_bytes(4, "big")
        found.append(seal(bth + reth + payload, SOURCE_PORT, link))
    return found


def _address(description: dict[str, Any]) -> IPv4Address:
    return IPv4Address(description["planes"][0].split(":")[0])


def send(ours: dict[str, Any], peer: dict[str, Any], order: dict[str, Any]) -> None:
    """Send the packets of an order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((str(_address(ours)), SOURCE_PORT))
        for body in datagrams(ours, peer, order):
            sock.sendto(body, (str(_address(peer)), UDP_PORT))


def main() -> None:
    """Serve the tester until its requests end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the tester, too, which then ends this process
    ours: dict[str, Any] = {}
    peer: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        match request["do"]:
            case "open":
                answer = ours = open_queue_pair(request["wanted"])
            case "connect":
                peer = request["peer"]
            case "write":
                send(ours, peer, request["order"])
            case "memory":
                answer = {"data": bytes(request["length"]).hex()}
            case "port":
                answer = {"unsupported": "ports of RoCEv2 carry one path"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
