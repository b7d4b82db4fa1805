"""Denials with a lease and an epoch; the clock is the test's."""

from __future__ import annotations

import math

import pytest

from openmrc.ctl.denials import Denial, Denials
from openmrc.ctl.errors import FencedError
from openmrc.errors import InvalidArgumentError, NotFoundError

ONE, OTHER = Denial(port=1, ev=7), Denial(port=2, ev=7, peer="10.0.0.2")


def held(*denials: Denial, until: float) -> Denials:
    found = Denials()
    for denial in denials:
        found.add(denial, until)
    return found


def test_a_denial_lapses_without_renewal() -> None:
    denials = held(ONE, until=10.0)
    assert denials.lapsed(9.9) == []
    assert denials.lapsed(10.0) == [ONE]
    assert len(denials) == 0


def test_a_renewed_denial_does_not_lapse() -> None:
    denials = held(ONE, OTHER, until=10.0)
    assert denials.extend(15.0) == 2
    assert denials.lapsed(14.0) == []


def test_an_older_epoch_is_fenced_off() -> None:
    denials = Denials()
    denials.epoch = denials.check(7)
    with pytest.raises(FencedError, match="epoch 7 has taken over"):
        denials.check(6)
    assert denials.check(7) == denials.check(None) == 7


@pytest.mark.parametrize("lease", [0, -1, 60.1, math.inf, math.nan])
def test_a_lease_is_short_and_positive(lease: float) -> None:
    with pytest.raises(InvalidArgumentError, match="lease"):
        Denials().check(None, lease)


def test_a_denial_of_one_peer_covers_no_other() -> None:
    denials = held(OTHER, until=1.0)
    assert denials.covers(2, 7, "10.0.0.2")
    assert not denials.covers(2, 7, "10.0.0.3")
    assert held(Denial(port=2, ev=7), until=1.0).covers(2, 7, "10.0.0.3")


def test_lifting_what_is_not_denied_changes_nothing() -> None:
    denials = held(ONE, until=1.0)
    with pytest.raises(NotFoundError, match="not denied"):
        denials.remove([ONE, OTHER])
    assert ONE in denials
    assert denials.remove(None) == [ONE]


@pytest.mark.parametrize("ev", [0, 7, 0xC105, (1 << 32) - 1])
def test_a_mask_covers_the_evs_that_agree_in_its_bits(ev: int) -> None:
    plane, some = Denial(port=2, ev=0, mask=0), Denial(port=1, ev=0xC100, mask=0xFF00)
    denials = held(plane, some, until=1.0)
    assert denials.covers(2, ev, "10.0.0.3")
    assert denials.covers(1, ev, "10.0.0.3") == (ev in range(0xC100, 0xC200))
    assert denials.lapsed(1.0) == [plane, some]
    assert not denials.covers(2, ev, "10.0.0.3")
