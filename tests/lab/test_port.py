"""The port's program alone: two namespaces and one cable, packets in, packets out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from openmrc.fabric.model.port_settings import PortSettings
from openmrc.lab import kernel_maps
from openmrc.lab.namespaces import await_ports, batch
from openmrc.lab.port import MOST_PORTS, OBJECT, QUEUE_MAP, SETTINGS_MAP, SOURCE, PortCounters, packed
from tests.lab.sockets import Datagram, drain, mark, udp
from tests.needs import REASON

MBIT = 10**6
CONTROL, TRIMMABLE, TRIMMED, TRIMMED_LAST_HOP = 46, 4, 12, 16
SLOW = 1000  # bits a second: a packet takes 9 s, so that nothing leaves the queue while a slow machine sends
SIZE = 1000
KERNEL_NOISE = 4  # packets: an interface that comes up says which multicast groups it listens to
WIRE = SIZE + 14 + 40 + 8 + 24


@dataclass
class Cable:
    maps: dict[str, int]
    here: str
    there: str

    def set(self, **fields: object) -> None:
        kernel_maps.write(self.maps[SETTINGS_MAP], packed(PortSettings(**fields)))  # type: ignore[arg-type]

    def counters(self) -> PortCounters:
        return PortCounters.unpack(kernel_maps.read(self.maps[QUEUE_MAP], PortCounters.SIZE))

    def carry(self, count: int, dscp: int = TRIMMABLE, ecn: int = 2, size: int = SIZE) -> list[Datagram]:
        sender, receiver = udp(self.here, "fd00::1", 5000), udp(self.there, "fd00::2", 4791)
        with sender, receiver:
            mark(sender, dscp, ecn)
            for number in range(count):
                sender.sendto(number.to_bytes(4, "big") * (size // 4), ("fd00::2", 4791))
            return drain(receiver)


@pytest.fixture
def cable(lab_rights: None) -> Iterator[Cable]:
    names = [f"mrc-port-{os.getpid()}-{end}" for end in "ab"]
    try:
        batch("ip", [f"netns add {name}" for name in names])
        macs = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")
        ends = [f"name p0 netns {name} address {mac}" for name, mac in zip(names, macs, strict=True)]
        batch("ip", [f"link add {ends[0]} type veth peer {ends[1]}"])
        for index, name in enumerate(names):
            lines = [
                f"address add fd00::{index + 1}/64 dev p0 nodad",
                "link set dev p0 up",
                f"neighbor replace fd00::{2 - index} lladdr {macs[1 - index]} dev p0 nud permanent",
            ]
            batch("ip", lines, name)
        load = f"filter add dev p0 egress bpf direct-action object-file {OBJECT} section tc"
        batch("tc", ["qdisc add dev p0 clsact", load], names[0])
        shown = batch("tc", ["filter show dev p0 egress"], names[0])
        await_ports(names[0], ["p0"])
        yield Cable(kernel_maps.maps_of(int(re.search(r'"id":(\d+)', shown)[1])), *names)  # type: ignore[index]
    finally:
        batch("ip", [f"netns delete {name}" for name in names], force=True)


def test_a_port_that_is_told_nothing_lets_everything_through(cable: Cable) -> None:
    assert [(len(each.payload), each.dscp, each.ecn) for each in cable.carry(20)] == [(SIZE, TRIMMABLE, 2)] * 20


def test_packets_above_the_threshold_are_trimmed_to_their_headers_and_say_so(cable: Cable) -> None:
    cable.set(rate=SLOW, trim_above=5 * WIRE, keep=64)
    arrived = cable.carry(20)
    whole = [each for each in arrived if len(each.payload) == SIZE]
    trimmed = [each for each in arrived if len(each.payload) == 64 - 8]
    assert len(arrived) == 20
    assert len(whole) in (5, 6)  # six fill an empty queue; five, when the kernel's own packets were there first
    assert len(whole) + len(trimmed) == 20
    assert {each.dscp for each in whole} == {TRIMMABLE}
    assert {each.dscp for each in trimmed} == {TRIMMED}
    assert {each.ecn for each in arrived} == {2}
    numbers = {int.from_bytes(each.payload[:4], "big") for each in arrived}
    assert numbers == set(range(20))  # what is left is the beginning of each
    counted = cable.counters()
    assert (counted.trimmed, counted.dropped) == (len(trimmed), 0)
    assert 20 <= counted.packets <= 20 + KERNEL_NOISE


def test_a_packet_that_is_no_longer_than_a_trimmed_one_passes_whole_like_one(cable: Cable) -> None:
    cable.set(rate=SLOW, trim_above=2 * WIRE, drop_above=5 * WIRE, mark_low=1, mark_high=2)
    cable.carry(8)
    short = cable.carry(10, size=56)
    assert [(len(each.payload), each.dscp, each.ecn) for each in short] == [(56, TRIMMABLE, 2)] * 10


def test_trims_on_the_last_hop_have_a_dscp_of_their_own(cable: Cable) -> None:
    cable.set(rate=SLOW, trim_above=2 * WIRE, is_last_hop=True)
    assert {each.dscp for each in cable.carry(10) if len(each.payload) < SIZE} == {TRIMMED_LAST_HOP}


def test_marks_begin_at_the_lower_threshold_and_are_certain_above_the_upper_one(cable: Cable) -> None:
    cable.set(rate=SLOW, mark_low=10 * WIRE, mark_high=30 * WIRE)
    arrived = cable.carry(60)
    marked = [int.from_bytes(each.payload[:4], "big") for each in arrived if each.ecn == 3]
    assert min(marked) >= 10
    assert set(range(40, 60)) <= set(marked)
    assert 0 < len([number for number in marked if number < 30]) < 20
    assert cable.counters().marked == len(marked)


def test_packets_that_know_no_ecn_are_not_marked(cable: Cable) -> None:
    cable.set(rate=SLOW, mark_low=1, mark_high=2)
    assert {each.ecn for each in cable.carry(20, ecn=0)} == {0}


def test_control_is_neither_marked_nor_trimmed_nor_dropped(cable: Cable) -> None:
    cable.set(rate=SLOW, mark_low=1, mark_high=2, trim_above=3, drop_above=4)
    assert [(len(each.payload), each.dscp, each.ecn) for each in cable.carry(30, CONTROL)] == [(SIZE, CONTROL, 2)] * 30
    assert 30 <= cable.counters().control <= 30 + KERNEL_NOISE


def test_a_full_port_drops_what_may_not_be_trimmed(cable: Cable) -> None:
    cable.set(rate=SLOW, trim_above=2 * WIRE, drop_above=5 * WIRE)
    arrived = cable.carry(20, dscp=0)
    assert len(arrived) in (5, 6)
    assert 0 <= cable.counters().dropped - (20 - len(arrived)) <= KERNEL_NOISE


def test_control_too_is_dropped_where_it_alone_fills_the_port(cable: Cable) -> None:
    cable.set(rate=SLOW, trim_above=2 * WIRE, drop_above=5 * WIRE, control_drop_above=10 * WIRE)
    arrived = cable.carry(30, CONTROL)
    assert len(arrived) in (10, 11)
    counted = cable.counters()
    assert 0 <= counted.control_dropped - (30 - len(arrived)) <= KERNEL_NOISE
    assert counted.offered == counted.packets + counted.control_dropped + counted.dropped


def test_trimmed_packets_share_the_limit_of_control(cable: Cable) -> None:
    cable.set(rate=SLOW, trim_above=2 * WIRE, control_drop_above=3 * WIRE)
    arrived, counted = cable.carry(60), cable.counters()
    assert len(arrived) < 60
    assert 0 <= counted.control_dropped - (60 - len(arrived)) <= KERNEL_NOISE
    assert counted.trimmed == sum(len(each.payload) < SIZE for each in arrived)


def test_the_queue_empties_at_the_rate_of_the_port(cable: Cable) -> None:
    cable.set(rate=1000 * MBIT, trim_above=2 * WIRE)
    slow_sender = [len(cable.carry(1)[0].payload) for _ in range(3)]
    assert slow_sender == [SIZE] * 3


def test_a_cable_that_is_down_carries_nothing_and_counts_it(cable: Cable) -> None:
    cable.set(rate=SLOW, down=True)
    assert cable.carry(5) == []
    assert 5 <= cable.counters().lost <= 5 + KERNEL_NOISE
    cable.set(rate=SLOW)
    assert len(cable.carry(5)) == 5


def test_losses_and_damage_come_at_their_share(cable: Cable) -> None:
    cable.set(rate=0, loss=0.3)
    left = len(cable.carry(500))
    assert 290 <= left <= 410  # 350 and six standard deviations
    cable.set(rate=0, corruption=1.0)
    for each in cable.carry(10):
        sent = int.from_bytes(each.payload[4:8], "big").to_bytes(4, "big") * (SIZE // 4)
        turned = [bin(a ^ b).count("1") for a, b in zip(each.payload, sent, strict=True) if a != b]
        assert (
            len(turned) == 1 or sum(turned) > 1000 or len(turned) > 100
        )  # one bit, or the word that told which it was


def test_python_and_c_agree_on_both_layouts() -> None:
    text = SOURCE.read_text()
    for struct, size in (("configuration", len(packed(PortSettings(rate=1)))), ("state", PortCounters.SIZE)):
        body = re.search(rf"struct {struct} \{{(.*?)\n\}};", text, re.DOTALL)
        assert body is not None
        terms = re.findall(r"(__u64|__u32|struct bpf_spin_lock) \w+;", body[1])
        assert sum(8 if word == "__u64" else 4 for word in terms) == size
    assert f"#define PORTS {MOST_PORTS} " in text


@pytest.mark.needs("clang", "llvm-strip", "libbpf")
def test_the_shipped_object_is_what_the_source_compiles_to(tmp_path: Path) -> None:
    shipped_by = re.search(rb"clang (\d+)\0", OBJECT.read_bytes())
    here = re.search(rb"clang version (\d+)", subprocess.run(["clang", "--version"], capture_output=True).stdout)
    if shipped_by and here and shipped_by[1] != here[1]:
        pytest.skip(
            f"{REASON}clang {shipped_by[1].decode()}, which compiled the shipped object; here is {here[1].decode()}"
        )
    copy = tmp_path / "openmrc" / "lab" / "bpf"
    copy.mkdir(parents=True)
    shutil.copy(SOURCE, copy)
    shutil.copy(Path(__file__).parents[2] / "Makefile", tmp_path)
    subprocess.run(["make", "-s", "bpf"], cwd=tmp_path, check=True, capture_output=True)
    assert (copy / OBJECT.name).read_bytes() == OBJECT.read_bytes()
