"""A device that a person operates: `mrc conform --device 'by-hand --plane 192.0.2.1 ...'`.

It prints on the terminal what to do, and waits for Enter. What a connection of the device is like comes from the
command line (`--qpn`, `--psn`, `--addr`, `--r-key`), from a capture of an earlier transfer to it (`--seen FILE`), or is
asked for. A line with `-` says that the device cannot do it. At any time two kinds of lines report what the application
of the device sees:

    c [STATUS]              a write has completed (SUCCESS, RETRY_EXC_ERR, ...)
    r IMMEDIATE [LENGTH]    a write with immediate has arrived

`mrc conform --slack 60` gives a minute for each step.
"""

import argparse
import select
import sys
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TextIO

import msgspec

from openmrc.conform.devices.contract import (
    UNSUPPORTED_EXIT,
    Description,
    DeviceEvent,
    DeviceUnsupportedError,
    PairEnd,
    ProfileOrder,
    Wanted,
    WriteOrder,
    answer_to,
    pattern,
    tell,
)
from openmrc.errors import ConfigError, MrcError
from openmrc.live.host.addresses import PlaneAddress
from openmrc.wire.codes import Opcode

TERMINAL = Path("/dev/tty")
CANNOT = "-"
SHOWN = 8  # bytes of the pattern of a write
NUMBERS = ("qpn", "psn", "addr", "r_key")
_QUESTIONS = {"qpn": "QPN", "psn": "first PSN that it sends", "addr": "address of the region", "r_key": "R_Key"}


def seen_in_capture(path: Path, planes: list[str]) -> dict[str, int]:
    """Return what a capture shows of the device with these addresses; ConfigError if it cannot be read.

    Writes to it name its queue pair, region and key; writes from it begin with its first PSN.
    """
    from openmrc.conform.captured import read_capture

    own = {str(PlaneAddress.parse(each).ip) for each in planes}
    found: dict[str, int] = {}
    for each in read_capture(path):
        message, (source, destination) = each.message, each.ends
        if message is None or message.opcode > Opcode.WRITE_ONLY_IMM:
            continue
        if str(ip_address(destination)) in own:
            found.setdefault("qpn", message.bth.dqp)
            found["addr"] = min(found.get("addr", message.reth.va), message.reth.va)
            found.setdefault("r_key", message.reth.r_key)
        if str(ip_address(source)) in own:
            found.setdefault("psn", message.bth.psn)
    return found


@dataclass
class OperatedDevice:
    """The person at the terminal, and what is known of the device."""

    planes: list[str]
    known: dict[str, int]
    inward: TextIO
    outward: TextIO
    wanted: Wanted = field(default_factory=Wanted)

    def say(self, text: str) -> None:
        self.outward.write(f"{text}\n")
        self.outward.flush()

    def ask(self, text: str) -> str:
        """Show a question and return the answer; what happened meanwhile may be told before it."""
        self.say(text)
        while True:
            line = self.inward.readline()
            if not line:
                raise SystemExit(UNSUPPORTED_EXIT)
            answer = line.strip()
            if answer == CANNOT:
                raise DeviceUnsupportedError("the person said that the device cannot")
            if not self.report(answer):
                return answer

    def report(self, line: str) -> bool:
        """Tell the tester of an event; False if the line is none."""
        words = line.split()
        if not words or words[0] not in ("c", "r"):
            return False
        try:
            if words[0] == "c":
                event = DeviceEvent(event="completion", status=words[1] if len(words) > 1 else "SUCCESS")
            else:
                event = DeviceEvent(event="receive", immediate=int(words[1], 0), length=int([*words, "0"][2], 0))
        except (IndexError, ValueError):
            self.say("not understood: c [STATUS], or r IMMEDIATE [LENGTH]")
            return True
        tell(event)
        return True

    def open(self, wanted: Wanted) -> Description:
        rights = "that the peer may write" if wanted.writable else "that the peer may NOT write"
        self.say(f"\nMake a queue pair on {', '.join(self.planes)} with {wanted.planes} planes, {wanted.evs} EVs each:")
        self.say(f"  path MTU {wanted.mtu}, MPR {wanted.mpr}, {wanted.max_wimm} writes with immediate in flight")
        self.say(f"  timeout {wanted.timeout}, {wanted.linear} linear and {wanted.exponential} exponential retries")
        self.say(f"  {wanted.receives} receives posted; Dynamic MPR {'on' if wanted.dynamic_mpr else 'off'}")
        self.say(f"  a region of {wanted.bytes} zero bytes {rights}")
        if wanted.first_psn is not None:
            self.say(f"  its first PSN must be {wanted.first_psn:#x}")
        self.ask("then Enter")
        self.wanted = wanted
        return self._described()

    def reset(self) -> Description:
        self.ask("Take the queue pair through RESET; its region stays as it is. Then Enter")
        return self._described()

    def _described(self) -> Description:
        end = PairEnd(**{name: self._number(name) for name in NUMBERS})
        return self.wanted.description("operated by hand", self.planes[: self.wanted.planes], [end])

    def _number(self, name: str) -> int:
        known = self.known.get(name)
        while True:
            text = self.ask(f"{_QUESTIONS[name]}" + (f" [{known:#x}]:" if known is not None else ":"))
            if not text and known is not None:
                return known
            try:
                self.known[name] = int(text, 0)
                return self.known[name]
            except ValueError:
                self.say("a number, such as 0x1234")

    def connect(self, peer: Description) -> None:
        self.say(f"Connect it to {', '.join(peer.planes)} (UDP), QPN {peer.qpn:#x}, first PSN {peer.psn:#x},")
        self.say(f"  MTU {peer.mtu}, MPR {peer.mpr}; it writes to {peer.addr:#x} with R_Key {peer.r_key:#x}")
        self.say(f"  the peer {'answers' if peer.trim_nack else 'does NOT answer'} trimmed packets")
        self.ask("then Enter")

    def write(self, order: WriteOrder) -> None:
        begins = pattern(order.offset, min(order.length, SHOWN), order.fill).hex(" ")
        what = f"{order.count} writes" if order.count > 1 else "a write"
        extra = "" if order.immediate is None else f" with immediate {order.immediate:#x}"
        self.say(
            f"Get ready to post {what} of {order.length} bytes{extra} to offset {order.offset} of the peer's region"
        )
        self.say(f"  byte i is ((offset + i) * 7 + {order.fill}) % 251: {begins} ...")
        self.ask("Enter, and then post")

    def memory(self, offset: int, length: int, pair: int = 0) -> bytes:
        while True:
            try:
                last = offset + length - 1
                return bytes.fromhex(self.ask(f"Bytes {offset} to {last} of the region, in hexadecimal digits:"))
            except ValueError:
                self.say("pairs of hexadecimal digits, such as 00ff")

    def set_port(self, plane: int, up: bool) -> None:
        self.ask(f"Take the port of plane {plane} {'up' if up else 'down'}, then Enter")

    def profile(self, order: ProfileOrder) -> str:
        self.say(
            f"Make an {order.mode} EV profile of {order.count} EVs in the UDP source port, {order.min_active} active:"
        )
        self.say(f"  format of {order.widths} bits, fields (width, init, min, max, mask) {order.fields}")
        self.say(f"  EVs, for the ports in turn: {[hex(ev) for ev in order.evs]}; then deny numbers {order.denied}")
        return self.ask("Enter if it is ONLINE, else the error, such as EINVAL")

    def close(self) -> None:
        self.say("The test is over: destroy the queue pair")


def serve(device: OperatedDevice) -> None:
    """Serve the tester's requests until they end; report what the person says between them."""
    while True:
        ready, _, _ = select.select([sys.stdin, device.inward], [], [])
        if device.inward in ready and sys.stdin not in ready:
            line = device.inward.readline()
            if not line:
                return
            if line.strip() and not device.report(line.strip()):
                device.say("nothing is asked now; c [STATUS] or r IMMEDIATE [LENGTH] report an event")
            continue
        line = sys.stdin.readline()
        if not line:
            return
        tell(answer_to(msgspec.json.decode(line), device))


def main() -> None:
    """Read the options and serve."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plane", action="append", required=True, help="address of the device on a plane")
    options.add_argument("--seen", type=Path, help="a capture of a transfer to or from the device")
    options.add_argument("--terminal", type=Path, default=TERMINAL, help=argparse.SUPPRESS)
    for name in NUMBERS:
        options.add_argument(f"--{name.replace('_', '-')}", type=lambda text: int(text, 0), default=None)
    given = options.parse_args()
    try:
        known = seen_in_capture(given.seen, given.plane) if given.seen else {}
        known |= {name: value for name in NUMBERS if (value := getattr(given, name)) is not None}
        with given.terminal.open() as inward, given.terminal.open("w") as outward:
            serve(OperatedDevice(given.plane, known, inward, outward))
    except (MrcError, ConfigError, OSError) as error:
        sys.stderr.write(f"by_hand: {error}\n")
        sys.exit(UNSUPPORTED_EXIT)


if __name__ == "__main__":
    main()
