"""Send a file to another process over all planes; the receiver names it only once its SHA-256 is the sender's.

    python examples/send_file.py receive copy.bin
    python examples/send_file.py send model.bin 127.0.0.1

`--planes` names the local address of each plane; without it they are four planes of the loopback. A receiver that other
machines reach prints a token; give it to the sender as MRC_TOKEN.

The receiver offers a ring of slots. Each piece of the file is a write with immediate into the next slot, and the
receiver tells over the TCP channel how many slots it has emptied, so that a file may be larger than memory.
"""

import argparse
import hashlib
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

from openmrc.verbs import Connection, ConnectionOptions, Context, Listener, WorkCompletion, connect

SLOT, SLOTS = 1 << 20, 32  # bytes; 32 MiB in flight are 25 ms at 10 Gb/s
PORT = 18516
TIMEOUT = 60.0  # s, of every wait
OPTIONS = ConnectionOptions(max_send_wr=SLOTS, max_recv_wr=SLOTS, sq_sig_all=True)


def send(context: Context, path: Path, host: str, port: int = PORT, token: str = "") -> str:
    """Send a file; return the SHA-256 on which both ends agree."""
    ring = context.alloc_pd().reg_mr(mmap.mmap(-1, SLOT * SLOTS))
    digest = hashlib.sha256()
    posted = completed = emptied = 0  # pieces
    with (
        path.open("rb") as file,
        connect(context, host, port, regions=[ring], options=OPTIONS, token=token, timeout=TIMEOUT) as peer,
    ):
        slots = peer.remote.region(SLOT * SLOTS)
        peer.tell(path.stat().st_size)
        peer.hear(int, timeout=TIMEOUT)  # 0: the receives are posted
        while piece := file.read(SLOT):
            while posted - completed >= SLOTS:  # until then the slot of our ring is needed
                completed += len(checked(peer.send_cq.wait(TIMEOUT)))
            while posted - emptied >= SLOTS:
                emptied = peer.hear(int, timeout=TIMEOUT)
            start = posted % SLOTS * SLOT
            ring.bytes[start : start + len(piece)] = memoryview(piece)
            local = ring[start : start + len(piece)]
            peer.qp.post_write(local, slots.addr + start, slots.r_key, immediate=posted % (1 << 32))
            digest.update(piece)
            posted += 1
        while completed < posted:
            completed += len(checked(peer.send_cq.wait(TIMEOUT)))
        peer.tell(digest.hexdigest())
        while emptied < posted:
            emptied = peer.hear(int, timeout=TIMEOUT)
        return agreed(digest.hexdigest(), peer.hear(str, timeout=TIMEOUT))


def receive(listener: Listener, path: Path) -> str:
    """Receive a file from the next sender; return its SHA-256. FileExistsError if there is one of this name."""
    ring = listener.context.alloc_pd().reg_mr(mmap.mmap(-1, SLOT * SLOTS))
    part = path.with_name(f"{path.name}.part")
    with part.open("xb") as file, listener.accept(regions=[ring], options=OPTIONS, timeout=TIMEOUT) as peer:
        try:
            digest = hashlib.sha256()
            for piece in pieces(peer, ring.bytes.data, peer.hear(int, timeout=TIMEOUT)):
                file.write(piece)
                digest.update(piece)
            peer.tell(digest.hexdigest())
            agreed(peer.hear(str, timeout=TIMEOUT), digest.hexdigest())
            file.flush()
            os.link(part, path)  # fails if the name is taken
        finally:
            part.unlink()
    return digest.hexdigest()


def pieces(peer: Connection, ring: memoryview, size: int) -> Iterator[memoryview]:
    """Yield the pieces of `size` bytes in order; each is in its slot until the next one is asked for."""
    peer.qp.post_recv(SLOTS)
    peer.tell(0)
    taken = 0
    while size > 0:
        for arrived in checked(peer.recv_cq.wait(TIMEOUT)):
            if arrived.immediate != taken % (1 << 32) or not 0 < arrived.byte_len <= min(size, SLOT):
                raise SystemExit(f"piece {arrived.immediate} of {arrived.byte_len} bytes; {size} bytes are left")
            start = taken % SLOTS * SLOT
            yield ring[start : start + arrived.byte_len]
            size -= arrived.byte_len
            taken += 1
            peer.qp.post_recv()
            peer.tell(taken)


def checked(completions: list[WorkCompletion]) -> list[WorkCompletion]:
    """Return completions, all of which succeeded."""
    for each in completions:
        if not each.ok:
            raise SystemExit(f"{each.status.name}: {each.error}")
    return completions


def agreed(sent: str, received: str) -> str:
    """Return the SHA-256 of both ends."""
    if sent != received:
        raise SystemExit(f"SHA-256 of the sender {sent}, of the receiver {received}")
    return sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planes", help="local addresses, comma-separated")
    parser.add_argument("--port", type=int, default=PORT, help="TCP port of the receiver")
    parser.add_argument("--faults", help='impairments of arriving packets, such as "loss: 1%%, down: plane 2"')
    ends = parser.add_subparsers(dest="end", required=True)
    receiver, sender = ends.add_parser("receive"), ends.add_parser("send")
    for end in (receiver, sender):
        end.add_argument("file", type=Path)
    sender.add_argument("host")
    given = parser.parse_args()
    last = 7 if given.end == "send" else 8
    planes = given.planes.split(",") if given.planes else [f"127.0.{plane}.{last}" for plane in range(4)]
    with Context(planes, faults=given.faults) as context:
        if given.end == "send":
            began = time.monotonic()
            digest = send(context, given.file, given.host, given.port, os.environ.get("MRC_TOKEN", ""))
            print(f"{given.file.stat().st_size / 1e6:.1f} MB in {time.monotonic() - began:.2f} s, SHA-256 {digest}")
        else:
            with Listener(context, port=given.port, token=os.environ.get("MRC_TOKEN")) as listener:
                if listener.token:
                    print(f"MRC_TOKEN={listener.token}", flush=True)
                print(f"{given.file}: SHA-256 {receive(listener, given.file)}")


if __name__ == "__main__":
    main()
