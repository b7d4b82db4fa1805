"""EVs as profiles see them, for each format that sockets have."""

from __future__ import annotations

from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.ctl.profiles.ev_array import EvEntry
from openmrc.ctl.profiles.ev_format import EvBitWidths, EvExpansion, EvField, EvFormatMode
from openmrc.errors import InvalidArgumentError, TooBigError
from openmrc.live.attributes import EvFormat
from openmrc.live.ctl.nic_evs import NicEvs

VALUES = [[0xC001, 0xC002, 0xC003], [0xC401, 0xC402, 0xC403]]
ANY_PORT = EvExpansion(EvBitWidths(EvFormatMode.UDP, (16,)), (EvField(16, 0xC000, mask=0x3FFF),))


def evs(ev_format: EvFormat, values: list[list[int]] = VALUES) -> NicEvs:
    sockets: Any = SimpleNamespace(
        attr=SimpleNamespace(ev_format=ev_format), addresses=["a", "b"], evs=lambda plane: values[plane]
    )
    peers: Any = SimpleNamespace(path=lambda peer, plane, value: f"2001:db8:{peer}:{plane}::{value & 3}")
    return NicEvs(sockets, peers)


def wire(text: str) -> bytes:
    return bytes.fromhex(text).ljust(32, b"\0")


def test_a_udp_ev_is_its_source_port() -> None:
    assert evs(EvFormat.UDP).values(0, 0) == {wire("c001"): 0xC001, wire("c002"): 0xC002, wire("c003"): 0xC003}


def test_a_stev_is_port_and_label() -> None:
    carried = evs(EvFormat.STEV, [[0xC001_0007], [0xC401_0009]])
    assert carried.values(1, 0) == {wire("c4010009"): 0xC401_0009}


def test_an_srv6_ev_is_the_address_that_leads_to_the_peer() -> None:
    carried = evs(EvFormat.SRV6)
    address = ip_address("2001:db8:5:1::2").packed.ljust(32, b"\0")
    assert carried.values(1, 5)[address] == 0xC402
    assert address not in carried.values(1, 6)
    carried.check(EvFormatMode.SRV6, EvEntry(address, 2), address, "EV 0")  # which peer it is for shows later


def test_generated_evs_are_carried_distinct_and_of_each_port_in_turn() -> None:
    carried = evs(EvFormat.UDP)
    made = carried.generated(ANY_PORT, 6, seed=3)
    assert [ev.port for ev in made] == [1, 2] * 3
    assert {ANY_PORT.expand(ev.value) for ev in made} == {wire(f"{value:04x}") for row in VALUES for value in row}
    assert carried.generated(ANY_PORT, 4, seed=3) == made[:4]
    with pytest.raises(TooBigError, match="6 of this endpoint") as refused:
        carried.generated(ANY_PORT, 7, seed=3)
    assert refused.value.needed == 6


def test_bounds_of_fields_leave_out_other_evs() -> None:
    bounded = EvExpansion(ANY_PORT.format, (EvField(16, 0xC000, 2, 3, 0x3FFF),))
    assert {ev.port for ev in evs(EvFormat.UDP).generated(bounded, 2, seed=1)} == {1}


def test_srv6_evs_are_not_generated() -> None:
    with pytest.raises(InvalidArgumentError, match="EXPLICIT"):
        evs(EvFormat.SRV6).generated(ANY_PORT, 1, seed=1)


def test_what_no_socket_carries_is_refused_with_what_they_carry() -> None:
    with pytest.raises(InvalidArgumentError, match="EV 3: dddd is not carried on port 1; it has c001, c002, c003"):
        evs(EvFormat.UDP).check(EvFormatMode.UDP, EvEntry(wire("dd"), 1), wire("dddd"), "EV 3")
    with pytest.raises(InvalidArgumentError, match="no EV on port 2"):
        evs(EvFormat.UDP).check_ports({1})
