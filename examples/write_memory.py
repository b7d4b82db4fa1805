"""Write memory from one process into another, over four planes: run `write_memory.py` twice, once with `serve`."""

import sys

from openmrc.verbs import Context, Listener, connect

if sys.argv[1:] == ["serve"]:
    with Context([f"127.0.{plane}.8" for plane in range(4)]) as context, Listener(context, port=18600) as listener:
        memory = bytearray(1 << 20)
        region = context.alloc_pd().reg_mr(memory)
        with listener.accept(regions=[region], timeout=60) as peer:
            peer.qp.post_recv()
            peer.barrier(timeout=60)  # the receive is posted: without one, a write with an immediate fails
            print("immediate", peer.recv_cq.wait(timeout=60)[0].immediate, "and", bytes(memory[:5]))
            peer.barrier(timeout=60)  # the writer has its acknowledgement
else:
    with Context([f"127.0.{plane}.7" for plane in range(4)]) as context:
        region = context.alloc_pd().reg_mr(bytearray(b"hello" + bytes((1 << 20) - 5)))
        with connect(context, "127.0.0.8", 18600, regions=[region], timeout=60) as peer:
            peer.barrier(timeout=60)
            print(peer.write(region, peer.remote.regions[0], immediate=7, timeout=60).status.name)
            peer.barrier(timeout=60)
