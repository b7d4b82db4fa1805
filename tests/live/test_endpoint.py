"""Bytes through real sockets: every format, family and impairment that needs no root."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.live_pair import SMALL, Pair, addresses, joined
from openmrc.errors import MrcError
from openmrc.verbs import (
    AsyncEventKind,
    ConnectionOptions,
    Context,
    ContextAttr,
    DeadlineError,
    EvFormat,
    ExchangeError,
    Listener,
    QpState,
    WcStatus,
    connect,
)
from openmrc.wire.codes import Opcode
from openmrc.wire.pcapng import read_frames

SIZE = 1 << 16
_BTH = 20 + 8  # bytes of IPv4 and UDP before it


def fill(region: object, seed: int) -> None:
    region.bytes[:] = list(random.Random(seed).randbytes(SIZE))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("family", "segmentation"), [(4, True), (6, False)])
def test_a_write_arrives_byte_for_byte_over_every_plane(family: int, segmentation: bool) -> None:
    attr = replace(SMALL, segmentation=segmentation)
    with joined(planes=4, family=family, attr=attr, size=8 * SIZE) as pair:
        pair.regions[0].bytes[:] = list(random.Random(1).randbytes(8 * SIZE))
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
        assert pair.regions[1].bytes.tobytes() == pair.regions[0].bytes.tobytes()
        assert all(each.received_packets > 0 for each in pair.contexts[1].plane_counters())


@pytest.mark.parametrize("form", [EvFormat.STEV, EvFormat.SRV6])
def test_other_formats_carry_the_entropy_value_elsewhere(form: EvFormat) -> None:
    attr = replace(SMALL, ev_format=form)
    paths = []

    def path_to(address: str, plane: int, ev: int) -> str:
        paths.append((plane, ev))
        return "::1"

    with joined(family=6, attr=attr, carrier_of=path_to if form == EvFormat.SRV6 else None) as pair:
        fill(pair.regions[0], 2)
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
        assert pair.regions[1].bytes.tobytes() == pair.regions[0].bytes.tobytes()
        # Acknowledgements reflect the EV; one that did not come back whole would count for nothing.
        assert sum(ev.acked for ev in pair.ends[0].qp.ev_states()) > 0
        assert bool(paths) == (form == EvFormat.SRV6)


@pytest.mark.parametrize(
    "terms",
    [
        "loss: 5%",
        "delay: 300us",
        "delay: 100us, jitter: 300us",
        "corruption: 5%",
        "duplicate: 20%",
        "reorder: 10%",
        "trim: 10%",
        "rate: 400Mbps",
        "down: plane 1",
    ],
)
def test_bytes_survive_every_impairment(terms: str) -> None:
    with joined(faults=terms) as pair:
        target = pair.ends[0].remote.regions[0]
        for turn in range(4):
            fill(pair.regions[0], turn)
            pair.ends[0].write(pair.regions[0], target, timeout=20)
            assert pair.regions[1].bytes.tobytes() == pair.regions[0].bytes.tobytes()
        if "delay" not in terms and "rate" not in terms:
            assert sum(each.impaired for each in pair.contexts[1].plane_counters()) > 0


def test_a_spoilt_packet_is_refused_by_its_icrc_and_sent_again() -> None:
    with joined(faults="corruption: 30%") as pair:
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
        assert sum(each.refused for each in pair.contexts[1].plane_counters()) > 0
        assert pair.ends[0].qp.counters().retransmitted > 0
        assert "packets had a wrong ICRC" in pair.contexts[1].progress()


def test_a_delay_is_felt() -> None:
    with joined(faults="delay: 20ms") as pair:
        began = time.monotonic()
        pair.ends[0].write(pair.regions[0][:8], pair.ends[0].remote.regions[0], timeout=20)
        assert time.monotonic() - began > 0.02


@pytest.mark.needs("jit")
def test_a_long_round_trip_is_no_queue() -> None:
    """A window of 3 MiB takes 20 round trips; with one of a packet for each, as for a queue, it would be 15,000."""
    size = 60 << 20
    with joined(planes=4, size=size, faults="delay: 10ms") as pair:
        pair.contexts[0].impair("delay: 10ms")
        end = pair.ends[0]
        began = time.monotonic()
        end.write(pair.regions[0], end.remote.regions[0], timeout=60)
        assert time.monotonic() - began < 20


def test_planes_may_die_and_return_while_the_schedule_runs() -> None:
    with joined() as pair:
        pair.contexts[1].impair("down: plane 0; at: 300ms, up: plane 0")
        target, deadline = pair.ends[0].remote.regions[0], time.monotonic() + 20
        kinds: set[AsyncEventKind] = set()
        while time.monotonic() < deadline:
            pair.ends[0].write(pair.regions[0], target, timeout=20)
            kinds |= {event.kind for event in pair.contexts[0].poll_async_events()}
            states = [ev.state.name for ev in pair.ends[0].qp.ev_states() if ev.plane == 0]
            if AsyncEventKind.EV_STATE in kinds and "ASSUMED_BAD" not in states:
                break
        assert AsyncEventKind.EV_STATE in kinds, "an EV was left"
        assert "ASSUMED_BAD" not in states


def test_a_silent_plane_is_reported_by_events_counters_and_paths() -> None:
    with joined() as pair:
        qp, context = pair.ends[0].qp, pair.contexts[0]
        texts: list[str] = []

        def labels(plane: int) -> set[str]:
            return {ev.label for ev in qp.ev_states() if ev.plane == plane}

        def is_heard_again() -> bool:
            events = [event for event in context.poll_async_events() if event.kind == AsyncEventKind.SILENT_PLANE]
            texts.extend(event.text for event in events if event.plane == 1)
            return "plane 1: heard again" in texts and "plane 1 (silent)" not in qp.describe()

        # On a busy machine the other plane may lose packets, or be silent, for a moment.
        pair.contexts[1].impair("down: plane 1")
        _write_until(pair, lambda: "plane 1 (silent)" in qp.describe() and labels(0) <= {"GOOD", "SKIP"})
        assert labels(1) <= {"SILENT", "ASSUMED_BAD"}
        silenced = context.plane_counters()[1]
        assert silenced.silent
        assert silenced.silences > 0
        pair.contexts[1].impair("up: plane 1")
        _write_until(pair, is_heard_again)
        assert texts[:2] == ["plane 1: silent, data takes the others", "plane 1: heard again"]


def _write_until(pair: Pair, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)


def test_a_peer_that_falls_silent_ends_in_an_error_that_names_it() -> None:
    with joined() as pair:
        pair.contexts[1].impair("down: all")
        pair.ends[0].qp.post_write(pair.regions[0], *_target(pair))
        completion = pair.ends[0].send_cq.wait(20)[0]
        assert completion.status == WcStatus.RETRY_EXC_ERR
        assert pair.ends[0].qp.state == QpState.ERROR
        for word in (
            pair.ends[0].remote.address.planes[0],
            "USER_TIMEOUT: no progress for",
            "all EVs of all planes",
            "acknowledged",
        ):
            assert word in completion.error


def _target(pair: object) -> tuple[int, int]:
    region = pair.ends[0].remote.regions[0]  # type: ignore[attr-defined]
    return region.addr, region.r_key


def test_a_write_outside_the_region_is_refused_and_touches_nothing() -> None:
    with joined() as pair:
        addr, r_key = _target(pair)
        fill(pair.regions[0], 3)
        pair.ends[0].qp.post_write(pair.regions[0], addr + 1, r_key)
        assert pair.ends[0].send_cq.wait(20)[0].status == WcStatus.REM_ACCESS_ERR
        assert pair.regions[1].bytes[-1] == 0


def test_memory_is_never_touched_after_deregistration() -> None:
    with joined() as pair:
        memory = pair.regions[1].bytes
        pair.regions[1].dereg()
        fill(pair.regions[0], 4)
        pair.ends[0].qp.post_write(pair.regions[0], *_target(pair))
        assert pair.ends[0].send_cq.wait(20)[0].status == WcStatus.REM_ACCESS_ERR
        assert not memory.any()


def test_writes_with_immediate_complete_in_order_although_the_network_reorders() -> None:
    with joined(faults="reorder: 30%, jitter: 200us") as pair:
        pair.ends[1].qp.post_recv(32)
        addr, r_key = _target(pair)
        for number in range(12):
            pair.ends[0].qp.post_write(pair.regions[0][:9000], addr, r_key, immediate=number, signaled=False)
        arrived: list[int | None] = []
        while len(arrived) < 12:
            arrived += [completion.immediate for completion in pair.ends[1].recv_cq.wait(20)]
        assert arrived == list(range(12))


def test_a_mismatch_fails_at_once_on_both_sides_with_both_values() -> None:
    planes = [addresses(side, 200, count, 4) for side, count in ((0, 1), (1, 2))]
    with Context(planes[0], SMALL) as one, Context(planes[1], SMALL) as two, Listener(two, "127.0.0.1", 0) as listener:
        errors: list[str] = []

        def accept() -> None:
            with pytest.raises(ExchangeError) as caught:
                listener.accept(timeout=20, options=ConnectionOptions(mpr=4, max_recv_wr=64))
            errors.append(str(caught.value))

        thread = threading.Thread(target=accept)
        thread.start()
        with pytest.raises(ExchangeError, match="plane count: here 1, there 2"):
            connect(one, "127.0.0.1", listener.port, timeout=20, options=ConnectionOptions(mpr=4, max_recv_wr=64))
        thread.join()
        assert "plane count: here 2, there 1" in errors[0]


def test_an_address_in_use_is_named() -> None:
    where = [f"{address}:4791" for address in addresses(0, 201, 1, 4)]  # without a port, the next one would be taken
    with Context(where, SMALL), pytest.raises(MrcError, match=where[0].partition(":")[0]):
        Context(where, SMALL)


def test_closing_wakes_those_who_wait_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with joined() as pair:
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                pair.ends[0].send_cq.wait(20)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        pair.contexts[0].close()
        thread.join(5)
        assert "closed" in str(errors[0])
    assert threading.active_count() == before


def test_a_wait_that_is_too_long_says_how_far_it_came() -> None:
    with joined() as pair, pytest.raises(DeadlineError, match="packets acknowledged"):
        pair.ends[0].send_cq.wait(0.01)


def test_a_killed_peer_is_an_error_within_the_configured_time() -> None:
    number, code = 210, "import sys; from tests.live.test_endpoint import serve; serve(int(sys.argv[1]))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(os.getpid())], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert child.stdout is not None
    options = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64, timeout=12, user_timeout=1.0)
    try:
        with Context(addresses(0, number, 2, 4), SMALL) as context:
            region = context.alloc_pd().reg_mr(bytearray(SIZE))
            port = int(child.stdout.readline())
            with connect(context, "127.0.0.1", port, regions=[region], options=options, timeout=20) as peer:
                peer.write(region, peer.remote.regions[0], timeout=20)
                os.kill(child.pid, signal.SIGKILL)
                child.wait(10)
                peer.qp.post_write(region, peer.remote.regions[0].addr, peer.remote.regions[0].r_key)
                # Twice, because peers that fall silent have more timeouts; seconds, for a machine that is busy.
                completion = peer.send_cq.wait(options.user_timeout * 2 + 8)[0]
                assert completion.status == WcStatus.RETRY_EXC_ERR
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def serve(parent: int) -> None:
    """Be the peer that is killed."""
    planes = [f"127.{100 + parent % 100}.211.{20 + plane}" for plane in range(2)]
    options = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64)
    with Context(planes, SMALL) as context, Listener(context, "127.0.0.1", 0) as listener:
        region = context.alloc_pd().reg_mr(bytearray(SIZE))
        print(listener.port, flush=True)  # noqa: T201
        listener.accept(regions=[region], options=options, timeout=60)
        signal.pause()


def test_a_capture_shows_both_directions_of_every_plane(tmp_path: Path) -> None:
    file = tmp_path / "planes.pcapng"
    with joined(capture=file, size=1 << 19) as pair:  # several trains
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
    with file.open("rb") as stream:
        frames = list(read_frames(stream))
    assert {frame.interface.split()[1] for frame in frames} == {"0", "1"}
    assert sum(len(frame.data) for frame in frames) > SIZE


def test_a_probe_of_the_way_back_is_answered_though_the_ends_have_other_entropy_values(tmp_path: Path) -> None:
    file = tmp_path / "probes.pcapng"
    with joined(capture=file, size=1 << 19) as pair:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
        assert [each.send_errors for context in pair.contexts for each in context.plane_counters()] == [0] * 4
    with file.open("rb") as stream:
        opcodes = {frame.data[_BTH] for frame in read_frames(stream)}
    assert {Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE} <= opcodes


def test_planes_are_found_where_none_are_given() -> None:
    attr = ContextAttr(max_qp=1, evs_per_plane=1)
    with Context(attr=attr) as context:
        assert "found" in context.describe()
        assert 1 <= len(context.query_device().planes) <= 16


def test_no_two_planes_share_an_entropy_value_and_trims_on_one_blame_it_alone() -> None:
    with joined(planes=4, faults="trim: 20%, on: plane 2") as pair:
        for _ in range(100):  # a starved host leaves a plane for a while, whose counts go with an EV that is exchanged
            pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
            states = pair.ends[0].qp.ev_states()
            assert len({ev.ev for ev in states}) == len(states) == 8
            assert sum(ev.trimmed for ev in states if ev.plane != 2) == 0
            if any(ev.trimmed for ev in states):
                break
        else:
            pytest.fail("no EV of plane 2 was trimmed in 100 writes")
