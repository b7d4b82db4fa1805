"""The first contents that kernels write are those that an endpoint of Python writes."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.live.attributes import ContextAttr
from openmrc.live.datapath.loop import opening
from openmrc.live.datapath.rows import build_datapath
from openmrc.live.host.runtime import HELD, EndpointRuntime
from openmrc.live.host.sockets import Sockets
from openmrc.live.host.tuning import settings_for

SMALL = ContextAttr(max_qp=2, max_peers=3, max_mr=1, max_cq=8, evs_per_plane=2)
FROM_OUTSIDE = {  # fields of the NIC that descriptors, clocks and addresses decide
    "epoch", "now", "source_key", "wake_fd", "python_wake_fd", "clock", "segmentation", "train_bytes",
    "placement", "poll_limit", "take_in_at", "send_out_at",
}  # fmt: skip
OF_SOCKETS = {"planes", "senders", "ev_values", "sender_of", "poll"}


@pytest.mark.parametrize("planes", [("127.0.0.1:0",) * 1, ("[::1]:0",)])
def test_tables_open_as_in_a_runtime(planes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    from openmrc.live.host import addresses

    monkeypatch.setattr(addresses, "UDP_PORT", 0)
    ports = Sockets([text.replace(":0", ":47910") for text in planes], SMALL)
    try:
        runtime = EndpointRuntime(ports, SMALL, settings_for(ports, ports.mtu), capturing=False)
        expected = runtime.datapath
        made = build_datapath(runtime.engine, len(planes), 2 * len(planes), 3, len(expected.cqs), HELD, 0)
        made.cq_of[:] = made.free_frames[:] = 0
        address = runtime.engine.endpoints[0].address
        opening.open_tables(runtime.engine, made, ports.addresses[0].ip.version)
        assert runtime.engine.endpoints[0].address == address
    finally:
        ports.close()
    for name, rows in made._asdict().items():
        if name not in {*OF_SOCKETS, "nic", "matrix", "mutex", "clock"}:
            _assert_same(name, np.asarray(rows), np.asarray(getattr(expected, name)), made, expected)
    _assert_same("nic", np.asarray(made.nic), np.asarray(expected.nic), made, expected)


def _assert_same(name: str, made: np.ndarray, expected: np.ndarray, ours: object, theirs: object) -> None:
    """Equal, addresses of tables counted from where the table begins."""
    fields = made.dtype.names or ()
    if not fields:
        assert np.array_equal(made, expected), name
    for field in fields:
        if field not in FROM_OUTSIDE:
            same = _relative(made[field], ours) == _relative(expected[field], theirs)
            assert same, f"{name}.{field}: {made[field]}, {expected[field]}"


def _relative(values: np.ndarray, tables: object) -> list[object]:
    places = {
        name: (np.asarray(rows).ctypes.data, np.asarray(rows).nbytes)
        for name, rows in tables._asdict().items()  # type: ignore[attr-defined]
    }
    return [
        next(((name, int(v) - at) for name, (at, size) in places.items() if at <= int(v) < at + size), int(v))
        for v in values.reshape(-1)
    ]
