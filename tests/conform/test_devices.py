"""Adapters that behave, and adapters that do not; this package's own endpoint over sockets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.devices import process
from openmrc.conform.devices.contract import (
    Description,
    DeviceGoneError,
    DeviceSilentError,
    DeviceUnsupportedError,
    Wanted,
    pattern,
)
from openmrc.conform.devices.process import ProcessDevice, RunDelays
from openmrc.conform.execution import TestExecution
from openmrc.conform.media.sockets import SocketMedium, own_loopback
from openmrc.conform.results import TestVerdict
from openmrc.errors import ConfigError

FAKE = {"device": "fake", "planes": ["127.0.0.9"], "qpn": 3, "psn": 0, "addr": 0, "r_key": 1, "length": 64}
FAKE |= {"mtu": 256, "mpr": 8, "max_wimm": 1}


def described(**changes: object) -> str:
    return json.dumps(FAKE | changes)


DESCRIPTION = described()


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
        ("sys.exit(127)", ConfigError, "exit code 127 before it answered `open`; was .* found"),
        (
            'sys.stdin.readline(); print(\'{"unsupported": "no planes"}\', flush=True)',
            DeviceUnsupportedError,
            "no planes",
        ),
        ("sys.exit(3)", DeviceGoneError, "exit code 3"),
        ("sys.stdin.readline(); print('hello', flush=True)", DeviceGoneError, "said b'hello'"),
        ("sys.stdin.readline(); print('[]', flush=True)", DeviceGoneError, "not an object"),
        ("sys.stdin.readline(); print('{}', flush=True)", DeviceGoneError, "something else than Description"),
        *(
            (f"sys.stdin.readline(); print('{described(**wrong)}', flush=True)", DeviceGoneError, said)
            for wrong, said in (
                ({"qpn": -1}, "qpn is -1, not in 0..16777215"),
                ({"psn": 1 << 24}, "psn is 16777216"),
                ({"addr": 1 << 70}, "addr"),
                ({"r_key": 1 << 32}, "r_key"),
                ({"mpr": 256}, "mpr is 256"),
                ({"planes": ["localhost:x"]}, "'localhost:x' is not an IP address"),
            )
        ),
    ],
)
def test_an_adapter_that_misbehaves_is_named(
    devices: list[ProcessDevice], code: str, error: type[Exception], said: str
) -> None:
    device = adapter(devices, code)
    with pytest.raises(error, match=said):
        device.open(Wanted())


@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_an_event_with_a_number_out_of_range_is_named(devices: list[ProcessDevice], number: int) -> None:
    event = f'{{"event": "receive", "immediate": {number}}}'
    device = adapter(devices, f"sys.stdin.readline(); print('{event}', flush=True); sys.stdin.readline()")
    with pytest.raises(DeviceGoneError, match="something else than DeviceEvent"):
        device.open(Wanted())


def test_an_adapter_that_has_answered_may_say_by_127_what_it_lacks(devices: list[ProcessDevice]) -> None:
    device = adapter(devices, f"sys.stdin.readline(); print('{DESCRIPTION}', flush=True); sys.exit(127)")
    device.open(Wanted())
    with pytest.raises(DeviceUnsupportedError, match="exit code 127"):
        device.memory(0, 1)


def test_a_device_that_is_slow_to_become_ready_is_waited_for(devices: list[ProcessDevice]) -> None:
    code = f"import time; sys.stdin.readline(); print('{DESCRIPTION}', flush=True)\n"
    code += "sys.stdin.readline(); time.sleep(1.5); print('{}', flush=True); sys.stdin.readline(); time.sleep(9)"
    devices.append(ProcessDevice([sys.executable, "-c", f"import sys\n{code}"], patience=0.5))
    devices[-1].open(Wanted())
    devices[-1].connect(Description(**FAKE))  # type: ignore[arg-type]
    with pytest.raises(DeviceSilentError, match=r"no answer to 'memory' within 0\.5 s"):
        devices[-1].memory(0, 1)


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


def test_a_thread_that_still_waits_for_a_processor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # Run time, wait and slices (schedstat): the kernel adds a wait only when it is over.
    looks = ["5 0 1", "5 0 1", "5 0 1", "6 80 2"]
    found = iter(looks)
    device = ProcessDevice(["unused"])
    monkeypatch.setattr(ProcessDevice, "pid", 1)
    monkeypatch.setattr(process, "_tasks", lambda pid: [Path("a thread")])
    monkeypatch.setattr(process, "_ready", lambda task: next(found))
    waited = {1: iter((0, 80))}
    monkeypatch.setattr(process, "run_delay", lambda pid: next(waited[pid]) if pid in waited else 0)
    delays = RunDelays([device])
    assert delays.total() == 0
    assert next(found, "all looks were taken") == "all looks were taken"
    monkeypatch.setattr(process, "_ready", lambda task: None)  # it sleeps
    assert delays.total() == 80
