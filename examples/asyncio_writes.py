"""Write to several peers at once from one asyncio program; the peers are tasks of the same program.

Every waiting method has an `async` twin: the event loop runs on while the network works.
"""

import asyncio

from openmrc.verbs import Context, Listener, connect_async

PEERS, SIZE = 3, 1 << 20


async def receive(listener: Listener, context: Context) -> int:
    """Take one write from one peer; return its immediate."""
    region = context.alloc_pd().reg_mr(bytearray(SIZE))
    peer = await listener.accept_async(regions=[region], timeout=60)
    with peer:
        peer.qp.post_recv()
        await asyncio.to_thread(peer.barrier, 60)
        completion = (await peer.recv_cq.wait_async(60))[0]
        assert region.bytes[0] == completion.immediate
        await asyncio.to_thread(peer.barrier, 60)  # the peer may leave
        return completion.immediate or 0


async def send(context: Context, number: int, port: int) -> None:
    """Write a buffer full of one number to one peer."""
    region = context.alloc_pd().reg_mr(bytearray([number]) * SIZE)
    peer = await connect_async(context, "127.0.0.1", port, regions=[region], timeout=60)
    with peer:
        await asyncio.to_thread(peer.barrier, 60)
        await peer.write_async(region, peer.remote.regions[0], immediate=number, timeout=60)
        await asyncio.to_thread(peer.barrier, 60)


async def main() -> None:
    """Open both ends, and let all transfers run at once."""
    here, there = (Context([f"127.0.{plane}.{host}" for plane in range(4)]) for host in (5, 6))
    async with here, there:
        with Listener(there, "127.0.0.1", 0) as listener:
            takers = [receive(listener, there) for _ in range(PEERS)]
            senders = [send(here, number + 1, listener.port) for number in range(PEERS)]
            results = await asyncio.gather(*takers, *senders)
    print("immediates", sorted(each for each in results if each is not None))


asyncio.run(main())
