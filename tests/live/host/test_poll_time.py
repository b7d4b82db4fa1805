"""How long waits poll: what the attribute, the environment and the machine say."""

from __future__ import annotations

import pytest

from openmrc.live.attributes import ContextAttr
from openmrc.live.checks import check_attributes
from openmrc.live.host import poll_time
from openmrc.live.host.poll_time import LEAST_US, MOST_US, VARIABLE, poll_us
from openmrc.verbs import InvalidArgumentError


def test_the_attribute_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "70")
    assert poll_us(0) == 0
    assert poll_us(12.5) == 12.5
    assert poll_us(None) == 70


@pytest.mark.parametrize("text", ["", "soon", "-1", "1001", "nan", "inf", "1e99"])
def test_a_value_of_the_environment_that_is_no_time_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(
        InvalidArgumentError, match=rf"MRC_POLL_US: '{text}' is not a number of microseconds in 0..1000"
    ):
        poll_us(None)


@pytest.mark.parametrize("value", [-1, 1000.5, float("nan"), True, "20"])
def test_an_attribute_that_is_no_time_is_named(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"poll_us: .* is not a number of microseconds in 0..1000"):
        check_attributes(ContextAttr(poll_us=value))  # type: ignore[arg-type]


@pytest.mark.parametrize(("wake_up", "wanted"), [(1.0, LEAST_US), (10.0, 80.0), (1000.0, MOST_US)])
def test_without_either_a_few_wake_ups_bound_it(monkeypatch: pytest.MonkeyPatch, wake_up: float, wanted: float) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(poll_time, "wake_up_us", lambda: wake_up)
    assert poll_us(None) == wanted


def test_a_wake_up_takes_some_time() -> None:
    assert 0.1 < poll_time.wake_up_us() < 1e5
