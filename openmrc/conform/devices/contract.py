"""What a device under test must be able to do: the requests of the tester and the answers of an adapter.

An adapter is a command. The tester writes one JSON object a line to its stdin, each with `do`; the adapter answers each
with one line on its stdout. Lines with `event` may come at any time. For what it lacks an adapter answers
`{"unsupported": "why"}` and waits for the next test, or exits with code 127 if it has answered `open` before: until
then 127 is what shells say of a command that they do not find, and the run ends.

| request | fields | answer |
|---|---|---|
| `open` | those of `Wanted` | those of `Description`: a fresh queue pair and a zeroed region |
| `connect` | `Description` of the tester | `{}`: the queue pair can send and receive |
| `write` | `length`, `offset`, `fill`, `immediate` (or null), `count`, `pair` | `{}`: each completes with an event |
| `memory` | `offset`, `length`, `pair` unless 0 | `{"data": "hex digits"}`: the region now |
| `port` | `plane`, `up` | `{}`: the local port is up or down |
| `profile` | those of `ProfileOrder` | `{}`: what connects next uses it; `{"refused": "EINVAL"}`: the error |
| `reset` | | those of `Description`: the queue pair went through RESET, its region is as it was; `connect` follows |
| `close` | | `{}`: the queue pair is gone |

Events: `{"event": "completion", "status": "SUCCESS"}` for a write, the statuses named as in `enum ibv_wc_status`;
`{"event": "receive", "immediate": 7, "length": 64}` for a write with immediate that arrived.
Byte i of what a write sends is `((offset + i) * 7 + fill) % 251`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

import msgspec

from openmrc.conform.datagrams import USUAL_DSCPS, DscpNumbers
from openmrc.errors import MrcError
from openmrc.wire.message import PATH_MTUS

UNSUPPORTED_EXIT = 127
_ALLOWED: dict[str, range] = {  # numbers in a description: what their fields on the wire hold
    "qpn": range(1 << 24), "psn": range(1 << 24), "addr": range(1 << 64), "r_key": range(1 << 32),
    "length": range(1 << 64), "mtu": range(1 << 16), "mpr": range(1 << 8), "max_wimm": range(1 << 16),
    "first_path": range(1 << 10),
}  # fmt: skip
_WANTED: dict[str, range] = {  # what a test may ask for: the adapters that ship have as much
    "planes": range(1, 17), "pairs": range(1, 17), "evs": range(1, 65), "bytes": range(1, (1 << 24) + 1),
    "mpr": range(1, 1 << 8), "granted": range(1 << 8), "max_wimm": range(1 << 10), "receives": range(1 << 12),
    "timeout": range(1, 1 << 5), "linear": range(1 << 3), "exponential": range(1 << 3),
}  # fmt: skip
LARGEST_WRITE = 1 << 20  # bytes that a test may have a device write
MOST_WRITES = 512  # that a device must be able to hold
FIRST_PSN = 0x00_5000  # of the devices that ship, where a test leaves it open
PERIOD = 251  # bytes after which the pattern repeats: a prime, so that it never fits the path MTU


class Wanted(msgspec.Struct, kw_only=True, frozen=True):
    """What a test needs of the device."""

    planes: int = 2
    pairs: int = 1  # queue pairs to the tester, each in a protection domain and with a region of its own
    evs: int = 4  # per plane
    mtu: int = 1024  # bytes
    bytes: int = 1 << 16  # of the region that the tester may write
    writable: bool = True  # False: registered without the right of remote write
    mpr: int = 8  # unit 128 PSNs: window that the device grants
    granted: int = 0  # the same, of the window that the tester grants; 0: as large
    max_wimm: int = 4  # writes with immediate in flight that the device accepts
    receives: int = 16  # posted before the first packet
    timeout: int = 14  # 1.024 us x 2**timeout
    linear: int = 7
    exponential: int = 7
    dynamic_mpr: bool = False
    trim_nack: bool = True  # the tester answers trimmed packets
    first_psn: int | None = None  # of the device's own packets; None: any

    def __post_init__(self) -> None:
        """Raise ValueError for what no test may ask for."""
        _check_numbers(self, _WANTED)
        if self.mtu not in PATH_MTUS:
            raise ValueError(f"mtu is {self.mtu}, not one of {PATH_MTUS}")
        if self.first_psn is not None and self.first_psn not in _ALLOWED["psn"]:
            raise ValueError(f"first_psn is {self.first_psn}, not in 0..{_ALLOWED['psn'][-1]}")

    @property
    def psn(self) -> int:
        """First PSN of a device that ships."""
        return FIRST_PSN if self.first_psn is None else self.first_psn

    def description(self, device: str, planes: list[str], ends: list[PairEnd]) -> Description:
        """Return how a device with these addresses and queue pairs is reached that grants what is wanted."""
        first, *further = ends
        return Description(
            device=device, planes=planes, qpn=first.qpn, psn=first.psn, addr=first.addr, r_key=first.r_key,
            length=self.bytes, mtu=self.mtu, mpr=self.mpr, max_wimm=self.max_wimm, dynamic_mpr=self.dynamic_mpr,
            further=further,
        )  # fmt: skip


class PairEnd(msgspec.Struct, kw_only=True, frozen=True):
    """How one queue pair and its region are reached."""

    qpn: int
    psn: int  # first PSN of its own packets
    addr: int  # of its region
    r_key: int

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that their fields cannot hold."""
        _check_numbers(self, {name: _ALLOWED[name] for name in self.__struct_fields__})


class Description(msgspec.Struct, kw_only=True, frozen=True):
    """How one end of a connection is reached and what it grants."""

    device: str = ""  # name and version, for reports
    planes: list[str]  # "192.0.2.1:4791", one per plane
    qpn: int
    psn: int  # first PSN of its own packets
    addr: int  # of its region
    r_key: int
    length: int  # bytes of its region
    mtu: int
    mpr: int
    max_wimm: int
    trim_nack: bool = True  # it answers trimmed packets by NACKs
    dynamic_mpr: bool = False
    dscps: DscpNumbers = USUAL_DSCPS
    first_path: int = 0  # on plane p it sends from the UDP source ports 0xC000 + 1024 p + first_path on
    further: list[PairEnd] = []  # queue pairs after the first, their regions as long as its own

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that their fields cannot hold."""
        _check_numbers(self, _ALLOWED)

    def pairs(self) -> list[PairEnd]:
        return [PairEnd(qpn=self.qpn, psn=self.psn, addr=self.addr, r_key=self.r_key), *self.further]


def _check_numbers(struct: msgspec.Struct, allowed: Mapping[str, range]) -> None:
    for name, numbers in allowed.items():
        if (value := getattr(struct, name)) not in numbers:
            raise ValueError(f"{name} is {value}, not in {numbers[0]}..{numbers[-1]}")


class WriteOrder(msgspec.Struct, kw_only=True, frozen=True):
    """Writes that the tester asks for, all alike."""

    length: int
    offset: int = 0
    fill: int = 1
    immediate: int | None = None
    count: int = 1
    pair: int = 0


class ProfileOrder(msgspec.Struct, kw_only=True, frozen=True):
    """An EV profile as `mrc_ctl.h` has them, its EVs in the UDP source port, to be brought to ONLINE."""

    mode: Literal["auto", "explicit", "generated"]
    widths: list[int] = []  # bits, of the format
    fields: list[tuple[int, int, int, int, int]] = []  # width, init_val, min_val, max_val, mask
    count: int = 0  # EVs, of all ports together
    min_active: int = 0
    evs: list[int] = []  # explicit: the leading 16 bits of each, for the ports in turn
    denied: list[int] = []  # then set to DENIED: numbers of EVs, from 0


class DeviceEvent(msgspec.Struct, kw_only=True, frozen=True):
    """Something an application of the device would see."""

    event: Literal["completion", "receive"]
    status: str = "SUCCESS"
    immediate: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] | None = None
    length: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    pair: int = 0


class DeviceUnsupportedError(Exception):
    """The device cannot do what the test needs; the text says what."""


class DeviceGoneError(MrcError):
    """The device under test has ended, or answers the tester's requests with something else than an answer."""


class DeviceSilentError(DeviceGoneError):
    """The device under test has not answered a request in time."""


class AdaptedDevice(Protocol):
    """A device as its adapter has it do what is asked."""

    def open(self, wanted: Wanted) -> Description:
        """Make a queue pair and a zeroed region; raise UnsupportedError if that is impossible."""
        ...

    def connect(self, peer: Description) -> None:
        """Bring the queue pair up, towards the tester."""
        ...

    def write(self, order: WriteOrder) -> None:
        """Post writes to the tester's region."""
        ...

    def memory(self, offset: int, length: int, pair: int = 0) -> bytes:
        """Return a part of the region of a queue pair."""
        ...

    def reset(self) -> Description:
        """Take the queue pair through RESET to where `open` left it, with its region as it was."""
        ...

    def set_port(self, plane: int, up: bool) -> None:
        """Set a local port up or down."""
        ...

    def profile(self, order: ProfileOrder) -> str:
        """Make an EV profile for queue pairs that connect from now on; return the name of the error that refuses it."""
        ...

    def close(self) -> None:
        """End the queue pair."""
        ...


class DeviceUnderTest(AdaptedDevice, Protocol):
    def events(self) -> list[DeviceEvent]:
        """Return what happened since the last call."""
        ...


def tell(answer: Any) -> None:
    """Write an adapter's answer or event."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def answer_to(request: dict[str, Any], device: AdaptedDevice) -> Any:
    """Have a device do what a request asks; return the answer, also if it cannot."""
    try:
        return _answer(request, device)
    except DeviceUnsupportedError as error:
        return {"unsupported": str(error)}


def _answer(request: dict[str, Any], device: AdaptedDevice) -> Any:
    match request["do"]:
        case "open":
            return device.open(msgspec.convert(request["wanted"], Wanted))
        case "connect":
            device.connect(msgspec.convert(request["peer"], Description))
        case "write":
            device.write(msgspec.convert(request["order"], WriteOrder))
        case "memory":
            return {"data": device.memory(request["offset"], request["length"], request.get("pair", 0)).hex()}
        case "reset":
            return device.reset()
        case "port":
            device.set_port(request["plane"], request["up"])
        case "profile":
            refused = device.profile(msgspec.convert(request["order"], ProfileOrder))
            return {"refused": refused} if refused else {}
        case "close":
            device.close()
        case unknown:
            raise DeviceUnsupportedError(f"request {unknown!r}")
    return {}


def pattern(offset: int, length: int, fill: int) -> bytes:
    """Return what a write with this `fill` leaves at this offset of the region; fill 0 is untouched memory."""
    if fill == 0:
        return bytes(length)
    turn = bytes((n * 7 + fill) % PERIOD for n in range(PERIOD))
    begin = offset % PERIOD
    return (turn * (2 + length // PERIOD))[begin : begin + length]
