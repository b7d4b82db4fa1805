"""Batches of writes: what they write, when they fit, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.live_pair import SMALL, Pair, joined
from openmrc.live.datapath.rows import COMMANDS
from openmrc.verbs import BusyError, ConnectionOptions, InvalidArgumentError, NoRoomError, WriteBatch

DEPTH = 100
OPTIONS = ConnectionOptions(
    mpr=4, max_wimm=16, max_recv_wr=16, max_send_wr=DEPTH, timeout=12, linear_count=7, exponential_count=4
)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with joined(options=OPTIONS, attr=replace(SMALL, max_send_wr=DEPTH)) as opened:
        yield opened


def batch(pair: Pair, count: int, **options: Any) -> WriteBatch:
    target = pair.ends[0].remote.regions[0]
    places = np.arange(count) * 16
    given = {"lengths": 8, "local_offsets": places, "remote_offsets": places[::-1], **options}
    return WriteBatch(pair.regions[0], target.addr, target.r_key, **given)


def test_each_write_of_a_batch_lands_at_its_place_and_the_last_completes(pair: Pair) -> None:
    end, count = pair.ends[0], 40
    pair.regions[0].bytes[:] = np.random.default_rng(1).integers(0, 256, 1 << 16, np.uint8)
    end.qp.post_batch(batch(pair, count, wr_id=(1 << 64) - 1))
    assert [(each.wr_id, each.byte_len, each.ok) for each in end.send_cq.wait(20)] == [((1 << 64) - 1, 8, True)]
    sent, arrived = (np.asarray(region.bytes)[: count * 16].reshape(count, 16) for region in pair.regions)
    assert np.array_equal(arrived[::-1, :8], sent[:, :8])
    assert not arrived[:, 8:].any()


@pytest.mark.parametrize(("signaled", "completions"), [("all", 5), ("last", 1), ("none", 0)])
def test_signaled_says_which_writes_complete(pair: Pair, signaled: str, completions: int) -> None:
    end = pair.ends[0]
    end.qp.post_batch(batch(pair, 5, signaled=signaled))
    end.qp.drain(20)
    assert len(end.send_cq.poll(100)) == completions


def test_a_batch_that_does_not_fit_is_refused_whole_and_can_be_posted_later(pair: Pair) -> None:
    end, writes = pair.ends[0], batch(pair, 60)
    pair.contexts[1].impair("down: plane 0; down: plane 1")
    end.qp.post_batch(writes)
    with pytest.raises(NoRoomError, match=r"40 free, 60 wanted"):
        end.qp.post_batch(writes)
    assert end.qp.outstanding() == 60
    with pytest.raises(BusyError):
        pair.regions[0].dereg()
    pair.contexts[1].impair("clear: all")
    end.qp.drain(20)
    end.qp.post_batch(writes)
    end.qp.drain(20)
    assert len(end.send_cq.poll(100)) == 2


def test_batches_wrap_around_the_command_ring(pair: Pair) -> None:
    end, writes = pair.ends[0], batch(pair, 60, signaled="all")
    done = 0
    for _ in range(3 * COMMANDS // 60):
        end.qp.post_batch(writes)
        end.qp.drain(20)
        done += len(end.send_cq.poll(100))
    assert done == 3 * COMMANDS // 60 * 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": -1}, "write 0 reads bytes 0 to -1"),
        ({"local_offsets": [0, 1 << 16]}, r"write 1 reads bytes 65536 to 65544 of a region of 65536"),
        ({"lengths": [8, 1 << 62]}, "write 1 reads"),
        ({"lengths": [8, 8, 8]}, "of different lengths"),
        ({"lengths": 0.5}, "whole numbers"),
        ({"lengths": [], "local_offsets": 0, "remote_offsets": 0}, "1 to 256"),
        ({"lengths": [8] * 257, "local_offsets": 0, "remote_offsets": 0}, "1 to 256"),
        ({"remote_offsets": [0, -8]}, "below 0"),
        ({"remote_offsets": [0, 1 << 62]}, None),
        ({"wr_id": 1 << 64}, "wr_id"),
        ({"signaled": "first"}, "not one of last, all, none"),
    ],
)
def test_wrong_arguments_are_refused_by_name(pair: Pair, options: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert len(batch(pair, 2, **options)) == 2  # where the peer's region ends is the peer's to check
        return
    with pytest.raises(InvalidArgumentError, match=message):
        batch(pair, 2, **options)


def test_a_batch_of_another_domain_is_refused(pair: Pair) -> None:
    end = pair.ends[0]
    other = pair.contexts[0].alloc_pd().reg_mr(bytearray(64))
    target = end.remote.regions[0]
    with pytest.raises(InvalidArgumentError, match="not registered in this protection domain"):
        end.qp.post_batch(WriteBatch(other, target.addr, target.r_key, lengths=8))
    with pytest.raises(InvalidArgumentError, match="not 64 and 32 bits"):
        WriteBatch(pair.regions[0], 1 << 64, target.r_key, lengths=8)
    with pytest.raises(InvalidArgumentError, match="not a memory region"):
        WriteBatch(bytearray(8), 0, 0, lengths=8)  # type: ignore[arg-type]
