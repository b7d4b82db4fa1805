"""Send a NumPy array into another process's array, in pieces: run `numpy_arrays.py` twice, once with `serve`.

The receiver's array is registered as it is; nothing is copied, serialised or announced. Each write carries the number
of its row as immediate, so that the receiver can work on rows while others are still on their way.
"""

import sys

import numpy as np

from openmrc.verbs import Context, Listener, SendWr, connect

ROWS, COLUMNS = 64, 1 << 16

if sys.argv[1:] == ["serve"]:
    with Context([f"127.0.{plane}.4" for plane in range(4)]) as context, Listener(context, port=18601) as listener:
        array = np.zeros((ROWS, COLUMNS), np.float32)
        region = context.alloc_pd().reg_mr(array)
        with listener.accept(regions=[region], timeout=60) as peer:
            peer.qp.post_recv(ROWS)
            peer.barrier(timeout=60)  # the receives are posted
            sums: dict[int, float] = {}
            while len(sums) < ROWS:
                for completion in peer.recv_cq.wait(timeout=60):
                    row = completion.immediate or 0
                    sums[row] = array[row].sum()
            peer.barrier(timeout=60)  # the writer has its acknowledgements
            print(f"{ROWS} rows of {COLUMNS}, the sum of all is {sum(sums.values()):.0f}")
else:
    with Context([f"127.0.{plane}.3" for plane in range(4)]) as context:
        array = np.ones((ROWS, COLUMNS), np.float32)
        region = context.alloc_pd().reg_mr(array)
        size = array[0].nbytes
        with connect(context, "127.0.0.4", 18601, regions=[region], timeout=60) as peer:
            target = peer.remote.regions[0]
            peer.barrier(timeout=60)
            peer.qp.post_send(
                SendWr(
                    local=region[number * size : (number + 1) * size],
                    remote_addr=target.addr + number * size,
                    r_key=target.r_key,
                    immediate=number,
                )
                for number in range(ROWS)
            )
            peer.qp.drain(timeout=60)
            peer.barrier(timeout=60)
            print(f"{ROWS} rows written")
