"""Does any sequence of bytes make the wire do something other than return a packet or one typed error?

    python -m bench.wire.fuzz [--seconds 60] [--seed 1]

Feeds random bytes, damaged packets, damaged frames and damaged capture files to everything that reads
untrusted bytes. A finding is an exception that is no WireError, a disagreement between the compiled
decoder and the plain one, a packet that does not come back from its own bytes, or a case that takes
longer than a second. The exit code is 1 if there was one; its input is printed as hexadecimal digits.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
import traceback
from collections import Counter
from ipaddress import ip_address
from typing import Literal

import numpy as np

from openmrc.core.jit import entry
from openmrc.core.rows import table
from openmrc.errors import WireError
from openmrc.wire import ip, srv6
from openmrc.wire.capture import dissect, find_datagram
from openmrc.wire.codec import Bytes, as_matrix, decode, encode
from openmrc.wire.codes import Opcode, Trim, WireStatus
from openmrc.wire.headers import BTH, STACKS, WITH_PAYLOAD, stack
from openmrc.wire.layout import LONGEST_HEADER, Matrix
from openmrc.wire.message import REASONS, MrcPacket, compose, icrc_presence, parse
from openmrc.wire.packet import Packet
from openmrc.wire.pcapng import LinkType, PcapFrame, PcapngWriter, read_frames

SLOW = 1.0  # s for one case
MOST_FINDINGS = 10
GUARD = 64  # bytes after the packet, which nobody may look at


@entry
def compiled_decode(buffer: Bytes, at: int, length: int, packets: Matrix, index: int) -> int:
    """Decode one packet."""
    return decode(buffer, at, length, packets, index)


@entry
def compiled_encode(packets: Matrix, index: int, out: Bytes, at: int) -> int:
    """Encode one packet."""
    return encode(packets, index, out, at)


PACKETS = table(Packet, 1)
COLUMNS = as_matrix(PACKETS)
OUT = np.zeros(LONGEST_HEADER, np.uint8)


def any_packet(rng: random.Random) -> bytes:
    """Return a valid UDP payload, the ICRC being noise."""
    opcode, timestamped = rng.choice(list(STACKS)), rng.random() < 0.5
    headers = {
        header.name: {
            field.name: rng.getrandbits(field.width - (1 if field.signed else 0))
            for field in header.fields
            if field.sends is None and not (header is BTH and field.name in ("opcode", "pad", "ts"))
        }
        for header in stack(opcode, timestamped)
    }
    headers["bth"]["ts"] = int(timestamped)
    payload = rng.randbytes(rng.randrange(40)) if opcode in WITH_PAYLOAD else b""
    return compose(opcode, payload, **headers).emit() + rng.randbytes(4)


def any_frame(rng: random.Random) -> tuple[int, bytes]:
    """Return (link type, bytes) of a valid frame."""
    four = rng.random() < 0.3
    ends = ("10.0.0.1", "10.0.0.2") if four else ("fd00::1", "fd00::2")
    label, traffic_class = (0 if four else rng.getrandbits(20)), rng.choice((0, 12 << 2, 16 << 2, rng.getrandbits(8)))
    source, destination = map(ip_address, ends)
    data = ip.datagram(
        source, destination, 50_000, 4791, any_packet(rng), traffic_class=traffic_class, flow_label=label
    )
    if rng.random() < 0.4:
        path = [srv6.carrier([rng.randrange(1, 65536) for _ in range(rng.randrange(1, 7))]) for _ in range(2)]
        data = srv6.encapsulate(data, srv6.carrier([1]), path[: rng.randrange(1, 3)], reduced=rng.random() < 0.5)
    ethertype = b"\x08\x00" if data[0] >> 4 == 4 else b"\x86\xdd"
    links = {
        LinkType.RAW: b"",
        LinkType.ETHERNET: bytes(12) + rng.choice((b"", b"\x81\0\0\1")) + ethertype,
        LinkType.LINUX_SLL: bytes(14) + ethertype,
        LinkType.LINUX_SLL2: ethertype + bytes(18),
    }
    link = rng.choice(list(links))
    return link, links[link] + data


def any_file(rng: random.Random) -> bytes:
    """Return a valid capture file of either format."""
    frames = [any_frame(rng)[1] for _ in range(rng.randrange(4))]
    if rng.random() < 0.5:
        file = io.BytesIO()
        writer = PcapngWriter(file, ["plane0", "plane1"])
        for data in frames:
            writer.write(rng.randrange(2), rng.getrandbits(63), data, rng.choice(("", "comment")))
        return file.getvalue()
    order: Literal["little", "big"] = rng.choice(("little", "big"))
    magic = rng.choice((0xA1B2C3D4, 0xA1B23C4D))
    head = b"".join(n.to_bytes(size, order) for n, size in ((magic, 4), (2, 2), (4, 2), (0, 8), (65535, 4), (101, 4)))
    records = (b"".join(n.to_bytes(4, order) for n in (1, 2, len(data), len(data))) + data for data in frames)
    return head + b"".join(records)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes with some of them changed, cut, repeated or added."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        where = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if where < len(out):
                out[where] ^= 1 << rng.randrange(8)
            case 1 if where < len(out):
                out[where] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del out[where:]
            case 3:
                out[where:where] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                out[where : where + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"\0\1\0\0"))
            case 5:
                del out[where : where + rng.randrange(1, 9)]
    return bytes(out)


def read_packet(data: bytes, outcomes: Counter[str]) -> None:
    """Read a UDP payload in every way there is, and compare."""
    for trimmed in (False, True):
        message: MrcPacket | None = None
        reason = "read"
        try:
            message = parse(data, trimmed=trimmed)
        except WireError as error:
            reason = error.reason
        status, columns = _decode(data, trimmed)
        assert reason == ("read" if status == WireStatus.OK else REASONS[WireStatus(status)]), (reason, status)
        if message is not None:
            _compare(message, columns, data)
        outcomes[reason] += 1
    try:
        icrc_presence(data)
        parse(data, has_icrc=False)
    except WireError:
        pass


def _decode(data: bytes, trimmed: bool) -> tuple[int, dict[str, int]]:
    """Decode compiled, twice with different bytes beyond the end, and once interpreted."""
    found = []
    for decoder, beyond in ((compiled_decode, 0), (compiled_decode, 0xFF), (compiled_decode.py_func, 0)):
        COLUMNS[:] = 0
        PACKETS[0].trimmed = Trim.TRIMMED if trimmed else Trim.WHOLE
        buffer = np.frombuffer(bytearray(data) + bytes([beyond]) * GUARD, np.uint8)
        found.append((int(decoder(buffer, 0, len(data), COLUMNS, 0)), COLUMNS[0].tolist()))
    assert found[0] == found[1] == found[2], found
    return found[0][0], dict(zip(Packet.__annotations__, found[0][1], strict=True))


def _compare(message: MrcPacket, columns: dict[str, int], data: bytes) -> None:
    for part in message.parts:
        for field in part.header.fields:
            if field.column and not part.raw:
                bits = (1 << field.width) - 1
                assert columns[field.column] & bits == part.values[field.name] & bits, field
    if not message.trimmed:
        assert columns["payload_length"] == len(message.payload)
        again = parse(message.emit())
        assert again == message, (again, message)
        assert compiled_encode(COLUMNS, 0, OUT, 0) <= len(data)


def read_frame(link: int, data: bytes, original: int, outcomes: Counter[str]) -> None:
    """Read a frame down to its packet."""
    frame = PcapFrame(1, 0, "plane0", link, data, original)
    try:
        datagram = find_datagram(frame)
        if datagram is not None:
            dissect(frame, datagram).message.as_json()
        outcomes["read" if datagram else "passed over"] += 1
    except WireError as error:
        outcomes[error.reason if "link type" not in error.reason else "link type"] += 1


def read_file(data: bytes, outcomes: Counter[str]) -> None:
    """Read a capture file down to its packets."""
    try:
        for frame in read_frames(io.BytesIO(data)):
            read_frame(frame.link_type, frame.data, frame.original_length, outcomes)
    except WireError:
        outcomes["damaged file"] += 1


CASE: list[bytes] = [b""]  # the input of the case under way, to be printed if it fails


def one_case(rng: random.Random, outcomes: Counter[str]) -> None:
    """Run one case."""
    kind = rng.randrange(8)
    if kind == 0:
        data = bytes([rng.choice((0xC0, 0xD0)) | rng.randrange(16)]) * rng.randrange(2) + rng.randbytes(
            rng.randrange(80)
        )
        CASE[:] = [data]
        read_packet(data, outcomes)
    elif kind < 4:
        data = damaged(rng, any_packet(rng))
        CASE[:] = [data]
        read_packet(data, outcomes)
    elif kind < 6:
        link, data = any_frame(rng)
        data = damaged(rng, data)
        CASE[:] = [data]
        read_frame(
            rng.choice((link, link, link, rng.getrandbits(16))), data, len(data) + rng.choice((0, 0, 99)), outcomes
        )
    else:
        data = damaged(rng, any_file(rng))
        CASE[:] = [data]
        read_file(data, outcomes)


def fuzz(seconds: float, seed: int) -> int:
    """Run cases until the time is over; return how many findings there were."""
    rng, outcomes, findings, cases = random.Random(seed), Counter[str](), 0, 0
    read_packet(compose(Opcode.PROBE).emit(), outcomes)  # compile before the clock starts
    compiled_encode(COLUMNS, 0, OUT, 0)
    begun = said = time.monotonic()
    while (now := time.monotonic()) - begun < seconds and findings < MOST_FINDINGS:
        cases += 1
        try:
            one_case(rng, outcomes)
        except Exception:
            findings += 1
            print(f"finding {findings}, case {cases} of seed {seed}: {CASE[0].hex()}\n{traceback.format_exc()}")
        if time.monotonic() - now > SLOW:
            findings += 1
            print(
                f"finding {findings}, case {cases} of seed {seed} took {time.monotonic() - now:.1f} s: {CASE[0].hex()}"
            )
        if now - said > 10:
            said = now
            print(f"{now - begun:6.0f} s  {cases} cases  {findings} findings", file=sys.stderr, flush=True)
    elapsed = time.monotonic() - begun
    for outcome, count in outcomes.most_common():
        print(f"{count:>10}  {outcome}")
    print(f"{cases} cases in {elapsed:.0f} s, {cases / elapsed:.0f} a second, seed {seed}: {findings} findings")
    return findings


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    sys.exit(1 if fuzz(chosen.seconds, chosen.seed) else 0)


if __name__ == "__main__":
    main()
