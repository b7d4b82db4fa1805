"""How many data packets a second do two joined endpoints move on one core, without any network between them?

Both endpoints run in one compiled loop; each packet is handed over as it is made, each SACK when it
is due, so the figure includes send, receive, acknowledgement and completion.

    python -m bench.engine.pair [--json]
"""

from __future__ import annotations

import argparse
import json
import time

from openmrc.core.jit import entry
from openmrc.core.rows import Table, table
from openmrc.engine import endpoint, lifecycle
from openmrc.engine.paths import ev_states
from openmrc.engine.responder import regions
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.machines import QpEvent
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import NONE, Engine, WriteRequest
from openmrc.units import PS_PER_US

PLANES = 4
EVS = 32
MESSAGE = 1 << 20
R_KEY = 7
MARK = 1.5e6


def joined() -> Engine:
    """Return two endpoints with one queue pair each, connected."""
    layout = TableSizes(endpoints=2, ports=PLANES, evs_per_rotation=EVS, sends=16)
    engine = build(layout, Settings(), packets=2)
    for number in range(2):
        node = engine.endpoints[number]
        lifecycle.open_peer(engine, 0, node.peer_base, 1 - number)
        regions.register(engine, number, R_KEY, 0, 1 << 40, regions.Access.REMOTE_WRITE, 1, 0)
        row = engine.qps[node.qp_base]
        row.peer = node.peer_base
        row.dest_qpn = row.qpn
        row.pd = 1
        row.access = regions.Access.REMOTE_WRITE
        row.path_mtu = 4096
        row.timeout = 131 * PS_PER_US
        row.linear_count = row.exponential_count = 7
        row.mpr = row.mpr_dest = 8
        row.max_wimm = row.max_wimm_dest = 32
        row.trim_nack_dest = True
        for rotation in range(PLANES):
            for k in range(EVS):
                ev_states.set_ev(engine, node.qp_base, rotation, k, rotation << 8 | k)
        ev_states.begin(engine, 0, node.qp_base, EVS - 8, PLANES)
        for event in (QpEvent.TO_INIT, QpEvent.TO_RTR, QpEvent.TO_RTS):
            lifecycle.move(engine, 0, node.qp_base, event)
    return engine


@entry
def exchange(engine: Engine, write: Table[WriteRequest], messages: int) -> int:
    """Write `messages` times and return the control packets that took."""
    now = 0
    done = 0
    posted = 0
    control = 0
    ports = (1 << PLANES) - 1
    while done < messages:
        while posted < messages and endpoint.post_write(engine, now, 0, write[0]) == 0:
            posted += 1
        now += 41_000  # one 4 KiB packet at 800 Gb/s
        if endpoint.next_packet(engine, now, 0, ports, 0) == 1:
            endpoint.receive(engine, now + 6_000_000, 1, 0)
        while endpoint.next_packet(engine, now + 6_000_000, 1, ports, 1) == 1:
            control += 1
            endpoint.receive(engine, now + 12_000_000, 0, 1)
        endpoint.expire(engine, now, 0)
        endpoint.expire(engine, now, 1)
        while endpoint.next_completion(engine, 0) != NONE:
            done += 1
    return control


def measure(messages: int) -> dict[str, float]:
    """Return the figures of one run."""
    engine = joined()
    write = table(WriteRequest, 1)
    write[0].length, write[0].r_key, write[0].signaled = MESSAGE, R_KEY, 1
    began = time.perf_counter()
    control = exchange(engine, write, messages)
    seconds = time.perf_counter() - began
    sent = engine.qps[0].sent_packets
    return {
        "data_packets_per_s": sent / seconds,
        "ns_per_data_packet": seconds / sent * 1e9,
        "data_packets": sent,
        "control_packets": control,
        "retransmitted": engine.qps[0].retransmitted,
        "ratio_to_mark": sent / seconds / MARK,
    }


def main() -> None:
    """Print the best of some runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=4000, help="of 1 MiB")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measure(1)
    best = max((measure(options.messages) for _ in range(options.runs)), key=lambda run: run["data_packets_per_s"])
    if options.json:
        print(json.dumps(best))
        return
    print(f"{best['data_packets_per_s'] / 1e6:.2f} M data packets/s, {best['ns_per_data_packet']:.0f} ns each")
    print(f"control packets {best['control_packets']:.0f}, retransmitted {best['retransmitted']:.0f}")
    print(f"ratio to the mark of {MARK / 1e6:.1f} M/s: {best['ratio_to_mark']:.2f}")


if __name__ == "__main__":
    main()
