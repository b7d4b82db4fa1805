"""What ends a connection is time without progress in which the endpoint ran, whatever the cause, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from harness.engine_pair import NetworkConditions, Pair
from openmrc.engine import user_timeout
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.params import Settings
from openmrc.engine.state.queue_pairs import INFINITE_RETRIES
from openmrc.engine.state.tables import Cause, WcStatus
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S
from openmrc.wire.codes import NackReason, Opcode
from tests.engine.scripted_peer import MTU, Endpoint, nack, sack, steady, us

pytestmark = pytest.mark.clause("retry-budget")
T = 1000.0  # us: the timeout of the scripted endpoint; its attempts take 17 of them
ALLOWED = 50_000.0  # us


def patient(**options: Any) -> Endpoint:
    """Return an endpoint with a user timeout of `ALLOWED`."""
    return Endpoint(attributes={"user_timeout": us(ALLOWED)}, **options)


def is_given_up(endpoint: Endpoint, qp: int = 0) -> bool:
    return bool(endpoint.qp(qp).state == QpState.ERROR)


@pytest.mark.parametrize(("counts", "allowed"), [((2, 3), 17), ((0, 0), 1), ((7, 0), 8), ((0, 4), 31)])
def test_without_one_of_its_own_a_queue_pair_has_the_time_that_its_attempts_take(counts: Any, allowed: int) -> None:
    endpoint = Endpoint(attributes={"linear_count": counts[0], "exponential_count": counts[1]})
    assert user_timeout.allowed(endpoint.engine, 0) == allowed * us(T)
    endpoint.qp().exponential_count = INFINITE_RETRIES
    assert user_timeout.allowed(endpoint.engine, 0) == NEVER
    endpoint.qp().user_timeout = 5
    assert user_timeout.allowed(endpoint.engine, 0) == 5


@pytest.mark.parametrize("allowed", [3.5 * T, 17 * T, 100 * T])
def test_it_may_be_shorter_or_longer_than_the_attempts(allowed: float) -> None:
    endpoint = Endpoint(attributes={"user_timeout": us(allowed)})
    endpoint.write()
    endpoint.waits(until_us=allowed - 1)
    assert not is_given_up(endpoint)
    endpoint.waits(until_us=allowed)
    assert [done.status for done in endpoint.completions()] == [WcStatus.RETRY_EXC_ERR]
    assert endpoint.qp().cause == Cause.USER_TIMEOUT


@pytest.mark.parametrize("pause", [0.5, 8.0, 3600.0])
def test_time_in_which_the_endpoint_did_not_run_does_not_count(pause: float) -> None:
    endpoint = patient()
    endpoint.write()
    endpoint.sends()
    begun = endpoint.now
    endpoint.now += round(pause * PS_PER_S)  # nobody serves its timers
    endpoint.waits(until_us=(endpoint.now - begun) / 1e6 + 0.9 * ALLOWED)
    assert not is_given_up(endpoint)
    endpoint.waits(until_us=(endpoint.now - begun) / 1e6 + 0.2 * ALLOWED)
    assert is_given_up(endpoint)


def test_an_endpoint_that_seldom_runs_gives_nobody_up_for_its_own_lateness() -> None:
    endpoint = patient(settings=steady(loss_threshold=100))
    endpoint.write()
    for _ in range(20):  # each may cost the time to the next timer, a 32nd of what is allowed
        endpoint.all_sent()
        endpoint.now += 200 * PS_PER_MS
        endpoint.waits(until_us=endpoint.now / 1e6 + 100)  # 100 us of running, then 200 ms of waiting for a processor
    assert not is_given_up(endpoint)


def test_progress_beyond_a_hole_restores_all_of_it() -> None:
    endpoint = patient(settings=steady(loss_threshold=100))
    endpoint.write(3 * MTU)
    endpoint.all_sent()
    endpoint.waits(until_us=0.9 * ALLOWED)
    endpoint.receives(sack(-1, (2,)))
    endpoint.waits(until_us=1.8 * ALLOWED)
    assert not is_given_up(endpoint)
    endpoint.waits(until_us=1.95 * ALLOWED)
    assert is_given_up(endpoint)


@pytest.mark.needs("jit")  # retries until it is given up
def test_refusals_end_a_connection_after_the_same_time_however_many_there_are() -> None:
    endpoint = patient()
    endpoint.write()
    while not is_given_up(endpoint) and endpoint.now < us(2 * ALLOWED):
        for _ in endpoint.all_sent():
            endpoint.receives(nack(0, NackReason.NO_RESOURCE))
        endpoint.waits(until_us=endpoint.now / 1e6 + 20)
    assert us(ALLOWED) <= endpoint.now <= us(1.1 * ALLOWED)


def test_a_queue_pair_that_waits_while_others_fill_the_window_is_not_given_up() -> None:
    endpoint = patient(settings=steady(algorithm="uet-1.0-nscc"))
    endpoint.write()
    endpoint.peer().inflight = 1 << 40
    for turn in range(20):
        endpoint.peer().heard_at = endpoint.now  # the others are answered
        endpoint.waits(until_us=turn * ALLOWED / 4)
    assert not is_given_up(endpoint)
    endpoint.waits(until_us=7 * ALLOWED)
    assert is_given_up(endpoint)


# Between two endpoints, in virtual time: each cause, at any time of a transfer

GIVE_UP_US = 5_000.0


def drops_all(row: Any, endpoint: int) -> bool:
    return False


def drops_data(row: Any, endpoint: int) -> bool:
    """The path MTU has shrunk: what is short passes."""
    return int(row["opcode"]) > Opcode.WRITE_ONLY_IMM


def drops_answers(row: Any, endpoint: int) -> bool:
    return endpoint == 0


def drops_transport_acks(row: Any, endpoint: int) -> bool:
    return int(row["opcode"]) != Opcode.ACKNOWLEDGE


CAUSES = [drops_all, drops_data, drops_answers, drops_transport_acks]


def time_of_giving_up(cause: Callable[[Any, int], bool] | None, seed: int) -> float:
    """Return after which share of the user timeout a connection ends whose network begins to fail at random."""
    rng = random.Random(seed)
    settings = Settings(
        link_gbps=100.0, base_rtt_us=12.0, trimming=bool(seed % 2), silent_timeouts=1 + 3 * (seed % 3 == 0)
    )
    pair = Pair(NetworkConditions(loss=0.02 * (seed % 2), jitter_us=5.0), seed, settings=settings)
    pair.row(0).user_timeout = us(GIVE_UP_US)
    for number in range(16):
        pair.write(number, 0, rng.choice((100, 5_000, 20_000)), 0)
    pair.run(rng.uniform(1.0, 30.0))
    if cause is None:
        for port in range(pair.planes):
            pair.set_port(0, port, 0)
    pair.filter = cause
    pair.write(16, 0, 2_000, 0)
    begun = pair.now
    pair.run(begun / 1e6 + 3 * GIVE_UP_US, stop=lambda: pair.is_in_error(0))
    assert pair.row(0).cause == Cause.USER_TIMEOUT
    return (pair.now - begun) / us(GIVE_UP_US)


@pytest.mark.needs("jit")  # retries until it is given up
@pytest.mark.parametrize("cause", [*CAUSES, None], ids=lambda cause: cause.__name__ if cause else "no_port")
def test_a_connection_ends_within_a_tenth_of_its_user_timeout(cause: Callable[[Any, int], bool] | None) -> None:
    assert all(0.99 <= time_of_giving_up(cause, seed) <= 1.1 for seed in range(2))
