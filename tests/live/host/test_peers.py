from collections.abc import Iterator

import pytest

from harness.live_pair import SMALL, addresses
from openmrc.errors import BusyError, ConfigError, InvalidArgumentError
from openmrc.live.datapath import sources
from openmrc.live.errors import NoRoomError
from openmrc.live.host.peers import Peers
from openmrc.verbs import Context, PeerAddress


@pytest.fixture
def peers() -> Iterator[Peers]:
    with Context(addresses(0, 228, 1, 4), SMALL) as context:
        yield context.nic.peers


def ports_of(peers: Peers, address: PeerAddress) -> list[int]:
    return peers.prepare(address).ports[0].tolist()


def test_a_peer_that_names_its_ports_is_heard_from_those_only(peers: Peers) -> None:
    assert ports_of(peers, PeerAddress(planes=("192.0.2.1",), source_ports=((7, 5, 7),))) == [5, 7]


def test_a_peer_behind_a_translation_or_without_names_is_heard_from_any_port(peers: Peers) -> None:
    translated = PeerAddress(planes=("192.0.2.1",), source_ports=((5,),), any_source_port=True)
    assert ports_of(peers, translated) == [sources.ANY_PORT, 5]
    assert ports_of(peers, PeerAddress(planes=("192.0.2.1",))) == [sources.ANY_PORT]


def test_all_spellings_of_an_address_are_one_peer(peers: Peers) -> None:
    texts = ("192.0.2.1", "192.0.2.1:4791", " 192.0.2.1 ")
    spelled = [PeerAddress(planes=(text,), source_ports=((5,),)) for text in texts]
    numbers = {peers.take(peers.prepare(address)) for address in spelled}
    assert len(numbers) == 1
    number = numbers.pop()
    for _ in spelled[1:]:
        peers.give_back(number)
    assert peers.address(number) == spelled[0]
    peers.give_back(number)
    assert peers.address(number) is None


def test_a_refused_peer_leaves_nothing_behind(peers: Peers) -> None:
    first = peers.take(peers.prepare(PeerAddress(planes=("192.0.2.1",), source_ports=((5, 6),))))
    with pytest.raises(BusyError, match="source port 6"):
        peers.take(peers.prepare(PeerAddress(planes=("192.0.2.1",), source_ports=((6, 7),))))
    second = peers.take(peers.prepare(PeerAddress(planes=("192.0.2.1",), source_ports=((7, 8),))))
    assert first != second


def test_peers_run_out_and_come_back(peers: Peers) -> None:
    rows = [peers.prepare(PeerAddress(planes=(f"192.0.2.{number}",))) for number in range(1, SMALL.max_peers + 2)]
    taken = [peers.take(each) for each in rows[:-1]]
    with pytest.raises(NoRoomError, match="max_peers"):
        peers.take(rows[-1])
    peers.give_back(taken[0])
    assert peers.take(rows[-1]) == taken[0]


@pytest.mark.parametrize(
    ("address", "error"),
    [
        (PeerAddress(planes=("2001:db8::1",)), InvalidArgumentError),
        (PeerAddress(planes=("224.0.0.1",)), InvalidArgumentError),
        (PeerAddress(planes=("0.0.0.0",)), InvalidArgumentError),
        (PeerAddress(planes=("host",)), ConfigError),
        (PeerAddress(planes=("192.0.2.1",), source_ports=((1,), (2,))), InvalidArgumentError),
        (PeerAddress(planes=("192.0.2.1",), source_ports=((1 << 70,),)), InvalidArgumentError),
        (PeerAddress(planes=("192.0.2.1",), source_ports=(tuple(range(1, 3001)),)), NoRoomError),
    ],
    ids=range(7),
)
def test_addresses_that_cannot_be_a_peers_are_refused(
    peers: Peers, address: PeerAddress, error: type[Exception]
) -> None:
    with pytest.raises(error, match="remote"):
        peers.prepare(address)
