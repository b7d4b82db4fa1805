"""Adapters that behave, and adapters that do not; this package's own endpoint over sockets."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.devices.contract import DeviceGoneError, DeviceUnsupportedError, Wanted, pattern
from openmrc.conform.devices.process import ProcessDevice
from openmrc.conform.execution import TestExecution
from openmrc.conform.media.sockets import SocketMedium, own_loopback
from openmrc.conform.results import TestVerdict

DESCRIPTION = (
    '{"device": "fake", "planes": ["127.0.0.9"], "qpn": 3, "psn": 0, "addr": 0, "r_key": 1, "length": 64, '
    '"mtu": 256, "mpr": 8, "max_wimm": 1}'
)


@pytest.fixture
def devices() -> Iterator[list[ProcessDevice]]:
    made: list[ProcessDevice] = []
    yield made
    for device in made:
        device.stop()


def adapter(devices: list[ProcessDevice], code: str) -> ProcessDevice:
    """A device whose adapter is this Python code."""
    devices.append(ProcessDevice([sys.executable, "-c", f"import sys\n{code}"]))
    return devices[-1]


def test_an_adapter_describes_itself_and_reports_events_between_answers(devices: list[ProcessDevice]) -> None:
    event = '{"event": "receive", "immediate": 7, "length": 64}'
    code = f"sys.stdin.readline(); print('{DESCRIPTION}', flush=True)\n"
    code += f"sys.stdin.readline(); print('{event}'); print('{{\"data\": \"0a0b\"}}', flush=True); sys.stdin.readline()"
    device = adapter(devices, code)
    assert device.open(Wanted()).device == "fake"
    assert device.memory(0, 2) == b"\x0a\x0b"
    assert [(each.event, each.immediate) for each in device.events()] == [("receive", 7)]


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("sys.exit(127)", DeviceUnsupportedError, "exit code 127"),
        (
            'sys.stdin.readline(); print(\'{"unsupported": "no planes"}\', flush=True)',
            DeviceUnsupportedError,
            "no planes",
        ),
        ("sys.exit(3)", DeviceGoneError, "exit code 3"),
        ("sys.stdin.readline(); print('hello', flush=True)", DeviceGoneError, "said b'hello'"),
        ("sys.stdin.readline(); print('[]', flush=True)", DeviceGoneError, "not an object"),
        ("sys.stdin.readline(); print('{}', flush=True)", DeviceGoneError, "something else than Description"),
    ],
)
def test_an_adapter_that_misbehaves_is_named(
    devices: list[ProcessDevice], code: str, error: type[Exception], said: str
) -> None:
    device = adapter(devices, code)
    with pytest.raises(error, match=said):
        device.open(Wanted())


def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(DeviceGoneError, match="no-such-adapter"):
        ProcessDevice(["no-such-adapter"]).open(Wanted())


def test_the_pattern_of_a_write_never_fits_the_mtu() -> None:
    whole = pattern(0, 3000, 5)
    assert [whole[n] for n in (0, 1, 250, 251)] == [5, 12, (250 * 7 + 5) % 251, 5]
    assert pattern(1000, 500, 5) == whole[1000:1500]
    assert pattern(0, 4, 0) == bytes(4)


def test_our_endpoint_passes_over_sockets(devices: list[ProcessDevice]) -> None:
    command = [sys.executable, "-m", "openmrc.conform.adapters.endpoint"]
    devices += [ProcessDevice(command), ProcessDevice(command)]
    medium = SocketMedium(own_loopback(2), devices)
    try:
        for test in chosen(shipped_tests(), ["6.3.1/10", "6.1/2", "7.4.4/9"]):
            used = devices if test.part.value == "both" else devices[:1]
            result = TestExecution(test, medium, used).run()
            assert result.verdict in (TestVerdict.PASS, TestVerdict.INCONCLUSIVE), result.failure
    finally:
        medium.close()


@pytest.mark.needs("cc", "verbs.h", "jit")
def test_the_native_library_passes_over_sockets(devices: list[ProcessDevice]) -> None:
    command = [sys.executable, "-m", "openmrc.conform.adapters.libmrc"]
    devices += [ProcessDevice(command), ProcessDevice(command)]
    medium = SocketMedium(own_loopback(2), devices)
    try:
        for test in chosen(
            shipped_tests(), ["6.3.1/1", "6.3.1/10", "6.1/2", "10.6/1", "7.5.2/3", "7.4.4/1", "7.4.4/9"]
        ):
            used = devices if test.part.value == "both" else devices[:1]
            result = TestExecution(test, medium, used).run()
            assert result.verdict in (TestVerdict.PASS, TestVerdict.INCONCLUSIVE), (
                test.id,
                result.failure,
                result.note,
            )
    finally:
        medium.close()
