"""The simulator's side: record an endpoint of a run, and replay a schedule through the simulator's own adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from openmrc.core.rows import table
from openmrc.engine import endpoint as doors
from openmrc.engine.state.tables import NONE, WriteRequest
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop import window
from openmrc.sim.loop.fault_events import Faults
from openmrc.sim.loop.run import prepare
from openmrc.sim.network.build import build
from openmrc.sim.network.network_tables import Network
from openmrc.sim.transports.mrc import transport as mrc
from openmrc.sim.transports.mrc.frames import MrcFrame, pack, unpack
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.mrc.tap import CaptureTap, taps
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import NEVER
from openmrc.wire.packet import Packet
from tests.sim.small import leaf_spine
from tests.worlds.schedule import REQUEST, Recorder, Schedule, as_rows, columns_of, copied, decision

GARBAGE = 0x5A5A5A5A  # in every column that a frame must bring back
NETWORKS = ("marked", "trimmed")  # what switches write


def record(
    monkeypatch: pytest.MonkeyPatch,
    topology: Topology,
    work: Traffic,
    transport: MrcTransport,
    broken: Faults,
    endpoint: int,
    seed: int = 1,
) -> Schedule:
    """Run interpreted, and return what one endpoint was asked."""
    world = prepare(topology, work, transport, broken, seed)
    recorder = Recorder(doors, world.state.engine, endpoint)
    originals: dict[int, dict[str, int]] = {}

    def note_and_pack(packets: Any, frames: Any, packet: int, frame: int) -> None:
        originals[frame] = columns_of(packets, packet)
        pack(packets, frames, packet, frame)

    def unpack_and_recall(frames: Any, packets: Any, frame: int, packet: int) -> None:
        unpack(frames, packets, frame, packet)
        # All that its sender wrote, save what the network says of it and who it is from.
        recorder.arriving = {name: value for name, value in originals[frame].items() if name not in NETWORKS}
        del recorder.arriving["payload"]

    with monkeypatch.context() as patch:
        for name in ("run_window", "deliver_signals", "level", "apply_fault"):
            interpreted: Callable[..., object] = getattr(window, name).py_func
            patch.setattr(window, name, interpreted)
        patch.setattr(mrc, "endpoint", recorder)
        patch.setattr(mrc, "pack", note_and_pack)
        patch.setattr(mrc, "unpack", unpack_and_recall)
        world.run(NEVER, lambda: None)
    return recorder.close()


class SimulatedEndpoint:
    """One endpoint behind the simulator's adapter: packets go in and out as frames and hops."""

    def __init__(self, schedule: Schedule) -> None:
        self.endpoint = schedule.endpoint
        self.engine = copied(schedule.before)._replace(packets=table(Packet, 1))
        self.network: Network = build(leaf_spine(hosts=8, down=4), MrcTransport().network, hops=1)
        nics = len(self.engine.endpoints)
        kept = taps(self.engine, nics, CaptureTap())
        tallies, writes, classes = table(mrc.Tally, nics), table(WriteRequest, nics), table(mrc.QpClass, 1)
        self.state = mrc.Mrc(self.engine, table(MrcFrame, 1), tallies, kept, writes, classes)

    def receive(self, now: int, packet: dict[str, int]) -> None:
        pack(as_rows(packet), self.state.frames, 0, 0)
        np.asarray(self.engine.packets).view(np.int64)[:] = GARBAGE
        hop = self.network.hops[0]
        hop.frame = 0
        hop.entropy, hop.plane, hop.source = packet["entropy"], packet["port"], packet["source"]
        hop.marked, hop.trimmed = packet["marked"] == 1, packet["trimmed"]
        mrc._receive(self.state, self.network, 0, now, self.endpoint, 0)

    def next_packet(self, now: int, free_ports: int) -> dict[str, int] | None:
        if not mrc._next_packet(self.state, self.network, 0, now, self.endpoint, free_ports, 0):
            return None
        sent, arrives = columns_of(self.engine.packets, 0), table(Packet, 1)
        unpack(self.state.frames, arrives, 0, 0)
        hop, out = self.network.hops[0], columns_of(arrives, 0)
        travels = {"entropy": hop.entropy, "port": hop.plane, "destination": hop.destination}
        # Of no consequence for decisions, so a frame leaves it out; the class is the hop's service and `trimmable`.
        left_out = ("spdcid", "dpdcid", "vendor_info", "traffic_class")
        return out | travels | {name: sent[name] for name in left_out}

    def expire(self, now: int) -> None:
        mrc._expire(self.state, self.network, now, self.endpoint)


def replay(schedule: Schedule) -> SimulatedEndpoint:
    """Take a schedule through the simulator's adapter; every answer must be the recorded one."""
    world = SimulatedEndpoint(schedule)
    engine = world.engine
    for number, step in enumerate(schedule.steps):
        match step.door:
            case "receive":
                world.receive(step.now, step.given["packet"])
            case "next_packet":
                packet = world.next_packet(step.now, step.given["free_ports"])
                wanted = step.answer
                assert (packet is None) == (wanted is None), f"step {number}: {packet} instead of {wanted}"
                if packet is not None:
                    assert decision(packet) == decision(wanted), f"step {number}"
            case "put_data_first":
                doors.put_data_first(engine, world.endpoint, step.given["packets"])
            case "expire":
                world.expire(step.now)
            case "next_completion" | "next_event":
                row = getattr(doors, step.door)(engine, world.endpoint)
                assert row != NONE, f"step {number}: no {step.door}"
                rows = engine.completions if step.door == "next_completion" else engine.events
                assert columns_of(rows, row) == step.answer, f"step {number}"
            case "post_write":
                write = table(WriteRequest, 1)[0]
                for name in REQUEST:
                    setattr(write, name, step.given[name])
                assert doors.post_write(engine, step.now, step.given["qp"], write) == step.answer
            case "post_receive":
                assert doors.post_receive(engine, step.given["qp"], step.given["wr_id"]) == step.answer
            case "set_port":
                mrc._set_port(world.state, step.now, world.endpoint, step.given["port"], step.given["up"])
            case _:
                raise AssertionError(step.door)
    return world
