"""A second connection to a peer that is already known."""

import threading
from collections.abc import Sequence

import pytest

from harness.live_pair import Pair, joined
from openmrc.verbs import (
    Connection,
    ConnectionOptions,
    DeadlineError,
    ExchangeError,
    Listener,
    UnusableOfferError,
    WcStatus,
    connect,
)

OPTIONS = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64)


def connect_again(pair: Pair, remote_planes: Sequence[str], seconds: float = 20) -> Connection:
    """Connect the same two NICs once more, over addresses as given."""

    def accept(listener: Listener) -> None:
        try:
            listener.accept(regions=[pair.regions[1]], options=OPTIONS, timeout=seconds)
        except (ExchangeError, DeadlineError):  # after a refusal it waits for another peer
            return

    with Listener(pair.contexts[1], "127.0.0.1", 0) as listener:
        thread = threading.Thread(target=accept, args=[listener])
        thread.start()
        try:
            return connect(
                pair.contexts[0], "127.0.0.1", listener.port, options=OPTIONS, timeout=20, remote_planes=remote_planes
            )
        finally:
            thread.join()


def test_another_spelling_of_its_addresses_is_the_same_peer() -> None:
    with joined() as pair:
        spelled = [f"{plane}:4791" for plane in pair.contexts[1].query_device().planes]
        with connect_again(pair, spelled) as second:
            region = second.qp.pd.reg_mr(bytearray(b"again"))
            assert second.write(region, second.remote.regions[0], timeout=20).status is WcStatus.SUCCESS
            assert pair.regions[1].bytes[:5].tobytes() == b"again"


def test_a_peer_known_by_some_of_its_addresses_is_refused_with_a_public_error() -> None:
    with joined() as pair:
        first, second = pair.contexts[1].query_device().planes
        with pytest.raises(UnusableOfferError, match="already belongs to another peer"):
            connect_again(pair, [first, f"{second}:4999"], seconds=4)
