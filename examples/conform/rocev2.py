"""A RoCEv2 sender as a device under test: the negative control of `mrc conform`.

    mrc conform --device "python examples/conform/rocev2.py" --only requester

It speaks the contract of adapters, but its packets are those of RoCEv2's reliable connection, made with scapy
(`pip install scapy`), and it answers none. A tester that lets it pass tests nothing.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

UNSUPPORTED = 127
RC_WRITE_ONLY = 0x0A
QPN, PSN, R_KEY, ADDR = 0x11, 0x5000, 0x1234, 0x10_0000


def open_queue_pair(wanted: dict[str, Any]) -> dict[str, Any]:
    """Describe a queue pair that does not exist on addresses of this process's own."""
    high, low = divmod(os.getpid() & 0x3FFF, 256)
    return {
        "device": "RoCEv2 sender",
        "planes": [f"127.{64 + high}.{low}.{1 + plane}:4791" for plane in range(wanted["planes"])],
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


def send(ours: dict[str, Any], peer: dict[str, Any], order: dict[str, Any]) -> None:
    """Send RC write packets: BTH, RETH, payload, ICRC; no METH, no path selection."""
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.packet import Raw

    source, destination = (each["planes"][0].split(":")[0] for each in (ours, peer))
    reth = peer["addr"].to_bytes(8, "big") + peer["r_key"].to_bytes(4, "big") + order["length"].to_bytes(4, "big")
    for number in range(order.get("count", 1)):
        payload = bytes(min(order["length"], peer["mtu"]))
        bth = BTH(opcode=RC_WRITE_ONLY, dqpn=peer["qpn"], psn=PSN + number, ackreq=1, padcount=-len(payload) % 4)
        packet = IP(src=source, dst=destination) / UDP(sport=0xC000, dport=4791) / bth / Raw(reth + payload)
        body = bytes(packet)[28:]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((source, 0xC000))
            sock.sendto(body, (destination, 4791))


def main() -> None:
    """Serve the tester until its requests end."""
    try:
        import scapy  # noqa: F401
    except ImportError:
        sys.exit(UNSUPPORTED)
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
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
