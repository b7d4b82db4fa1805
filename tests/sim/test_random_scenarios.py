"""Random fabrics, transports, workloads and faults: runs end, add up, lose no packet and finish what can be finished.

`python -m bench.sim.random_scenarios` draws thousands.
"""

import os

import pytest

from bench.sim.random_scenarios import drawn, problems

EACH, PARTS = 25, 12
FAST_PARTS = 3  # of them in every run of the tests


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="hundreds of runs take compiled code")
@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.exhaustive] * (part >= FAST_PARTS)) for part in range(PARTS)]
)
def test_random_scenarios_end_and_add_up(part: int) -> None:
    longest = 120  # s of one; the slowest takes 16 s alone
    found = {seed: problems(drawn(seed), longest_s=longest) for seed in range(1 + part * EACH, 1 + (part + 1) * EACH)}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@pytest.mark.exhaustive
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="50,000 messages take compiled code")
def test_fifty_thousand_messages_of_a_byte_do_not_fill_the_links_with_trimmed_headers() -> None:
    assert problems(drawn(701), longest_s=90) == []  # it takes 10 s alone, three times that beside other tests
