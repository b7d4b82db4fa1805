"""Profiles configured over the controller socket, and queue pairs of a real endpoint that use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.live_pair import Pair
from openmrc.ctl import endpoint_ops, profile_ops
from openmrc.ctl.client import CtlClient
from openmrc.ctl.denials import Denial
from openmrc.ctl.profile_ops import EvOpRequest, EvProfileReport, EvRef
from openmrc.ctl.profiles.ev_format import EvField
from openmrc.engine.state.machines import EvState, QpState
from openmrc.errors import BusyError, InvalidArgumentError, NotFoundError, TooBigError
from openmrc.verbs import Context
from tests.ctl.endpoints import connected, opened

EMPTY = EvRef()
PORT_FIELD = EvField(width=16, init_val=0xC000, mask=0x3FFF)  # any source port from 0xC000


def online_format(client: CtlClient) -> None:
    client.call(profile_ops.modify_format, number=1, state="online", mode="udp", widths=(16,))


def refs(context: Context, plane: int) -> list[EvRef]:
    """Return the endpoint's EVs on a plane, as the fields of these tests contract them."""
    return [EvRef(ev=f"{(value & 0x3FFF) << 2:04x}", port=plane + 1) for value in context.nic.sockets.evs(plane)]


def absent(context: Context) -> int:
    """The least value, but 0, of two in a row that no socket of the endpoint carries: its ports depend on the pid."""
    carried = {value & 0x3FFF for plane in range(2) for value in context.nic.sockets.evs(plane)}
    return next(value for value in range(1, 0x3FFF) if not {value, value + 1} & carried)


def trimmed(ref: EvRef) -> EvRef:
    text = ref.ev
    return EvRef(ev=bytes.fromhex(text).rstrip(b"\0").hex() or "00", port=ref.port)


def explicit(client: CtlClient, evs: list[EvRef], number: int = 1, min_active: int = 1) -> EvProfileReport:
    if not client.call(profile_ops.profiles).formats:
        online_format(client)
    client.call(
        profile_ops.modify_ev_profile,
        number=number,
        state="offline",
        mode="explicit",
        format=1,
        count=len(evs),
        fields=(PORT_FIELD,),
    )
    batch = [EvOpRequest(ev=EMPTY, new=each) for each in evs]
    return client.call(
        profile_ops.modify_ev_profile,
        number=number,
        operation="replace",
        entries=batch,
        state="online",
        min_active=min_active,
        event_mask=["good", "assumed_bad"],
    )


def again(pair: Pair, **init: Any) -> None:
    """Take the first end's queue pair through RESET to RTS again."""
    qp = pair.ends[0].qp
    attr, _ = qp.query()
    qp.modify(state=QpState.RESET)
    qp.modify(replace(attr, state=QpState.INIT, cur_state=None, **init))
    attr = replace(attr, ev_profile_id=None, cc_profile_id=None)
    qp.modify(replace(attr, state=QpState.RTR))
    qp.modify(replace(attr, state=QpState.RTS))


@contextmanager
def with_profile(folder: Path) -> Iterator[tuple[Pair, CtlClient, list[EvRef]]]:
    """Yield a pair whose first end has, by an explicit profile 1, one EV on port 1 and two on port 2."""
    with connected(folder) as (pair, client):
        first, second = (refs(pair.contexts[0], plane) for plane in range(2))
        chosen = [first[1], *second[:2]]
        explicit(client, chosen)
        again(pair, ev_profile_id=1)
        yield pair, client, [trimmed(each) for each in chosen]


def test_an_explicit_profile_limits_a_queue_pair_to_its_evs(tmp_path: Path) -> None:
    with with_profile(tmp_path / "ctl") as (pair, client, _):
        evs = pair.ends[0].qp.ev_states()
        assert [ev.plane for ev in evs] == [0, 1, 1]
        assert evs[0].ev == pair.contexts[0].nic.sockets.evs(0)[1]
        report = client.call(profile_ops.profiles)
        assert report.evs[0].active_qps == 1
        again(pair, ev_profile_id=0)
        assert len(pair.ends[0].qp.ev_states()) == 6
        assert client.call(profile_ops.profiles).evs[0].active_qps == 0


def test_a_profile_in_use_keeps_its_state_and_shape(tmp_path: Path) -> None:
    with with_profile(tmp_path / "ctl") as (_, client, _evs):
        with pytest.raises(BusyError, match="1 queue pairs use it"):
            client.call(profile_ops.modify_ev_profile, number=1, state="offline")
        with pytest.raises(BusyError, match="1 EV profiles are ONLINE"):
            client.call(profile_ops.modify_format, number=1, state="offline")
        with pytest.raises(InvalidArgumentError, match="COUNT: not while"):
            client.call(profile_ops.modify_ev_profile, number=1, count=2)


def test_denying_an_ev_of_a_profile_reaches_the_queue_pair_and_lasts(tmp_path: Path) -> None:
    with with_profile(tmp_path / "ctl") as (pair, client, evs):
        client.call(
            profile_ops.modify_ev_profile, number=1, operation="state", entries=[EvOpRequest(ev=evs[1], state="denied")]
        )
        assert [ev.state for ev in pair.ends[0].qp.ev_states()] == [EvState.GOOD, EvState.DENIED, EvState.GOOD]
        again(pair, ev_profile_id=1)
        assert [ev.state for ev in pair.ends[0].qp.ev_states()].count(EvState.DENIED) == 1
        found = client.call(profile_ops.query_evs, number=1, evs=[evs[1], evs[0]]).entries
        assert [each.state for each in found] == ["DENIED", "GOOD"]
        client.call(
            profile_ops.modify_ev_profile, number=1, operation="state", entries=[EvOpRequest(ev=evs[1], state="good")]
        )
        assert {ev.state for ev in pair.ends[0].qp.ev_states()} == {EvState.GOOD}


def test_an_ev_in_use_is_replaced_on_its_own_port(tmp_path: Path) -> None:
    with with_profile(tmp_path / "ctl") as (pair, client, evs):
        new = refs(pair.contexts[0], 0)[2]
        client.call(
            profile_ops.modify_ev_profile, number=1, operation="replace", entries=[EvOpRequest(ev=evs[0], new=new)]
        )
        assert pair.ends[0].qp.ev_states()[0].ev == pair.contexts[0].nic.sockets.evs(0)[2]
        other = replace_ref(new, 2)
        with pytest.raises(InvalidArgumentError, match="replaced on its own port"):
            client.call(
                profile_ops.modify_ev_profile,
                number=1,
                operation="replace",
                entries=[EvOpRequest(ev=trimmed(new), new=other)],
            )


def replace_ref(ref: EvRef, port: int) -> EvRef:
    return EvRef(ev=ref.ev, port=port)


def test_a_batch_stops_at_the_first_failing_entry_and_says_how_far_it_came(tmp_path: Path) -> None:
    with with_profile(tmp_path / "ctl") as (pair, client, evs):
        batch = [
            EvOpRequest(ev=evs[1], state="denied"),
            EvOpRequest(ev=EvRef(ev="abcd", port=1), state="denied"),
            EvOpRequest(ev=evs[0], state="denied"),
        ]
        with pytest.raises(NotFoundError, match=r"entries\[1\].ev") as refused:
            client.call(profile_ops.modify_ev_profile, number=1, operation="state", entries=batch)
        assert refused.value.done == 1
        assert [ev.state for ev in pair.ends[0].qp.ev_states()] == [EvState.GOOD, EvState.DENIED, EvState.GOOD]


def test_a_generated_profile_takes_evs_of_the_endpoint_within_its_fields(tmp_path: Path) -> None:
    with opened(tmp_path / "ctl", 233) as (context, client):
        online_format(client)
        assert (
            client.call(
                profile_ops.modify_ev_profile,
                number=2,
                state="online",
                mode="generated",
                format=1,
                count=4,
                fields=(PORT_FIELD,),
                min_active=1,
                event_mask=[],
            ).state
            == "ONLINE"
        )
        entries = client.call(profile_ops.query_evs, number=2).entries
        assert {int(each.wire.ljust(4, "0"), 16) for each in entries} == {  # zeros at the end are not written
            v for plane in range(2) for v in context.nic.sockets.evs(plane)
        }
        beyond = EvField(width=16, init_val=0xC000, mask=0x3FFF, min_val=absent(context), max_val=absent(context) + 1)
        with pytest.raises(TooBigError, match="0 of this endpoint are within") as refused:
            client.call(
                profile_ops.modify_ev_profile,
                number=3,
                state="offline",
                mode="generated",
                format=1,
                count=4,
                fields=(beyond,),
            )
        assert refused.value.needed == 0


def test_an_automatic_profile_sets_how_many_evs_stay_active(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        client.call(
            profile_ops.modify_ev_profile,
            number=1,
            state="online",
            mode="auto",
            min_active=2,
            event_mask=["assumed_bad"],
        )
        again(pair, ev_profile_id=1)
        runtime = pair.contexts[0].nic.runtime
        assert runtime.engine.qps[pair.ends[0].qp.row].min_active_evs == 2
        assert len(pair.ends[0].qp.ev_states()) == 6


def test_evs_that_no_socket_carries_are_refused_with_those_that_are(tmp_path: Path) -> None:
    with opened(tmp_path / "ctl", 234) as (context, client):
        wire = f"{context.nic.sockets.evs(0)[0]:04x}"
        with pytest.raises(InvalidArgumentError, match=f"is not carried on port 1; it has {wire}"):
            explicit(client, [EvRef(ev=f"{absent(context) << 2:04x}", port=1), *refs(context, 1)[:1]])
        with pytest.raises(InvalidArgumentError, match="no EV on port 2"):
            explicit(client, refs(context, 0)[:1], number=2)


def test_formats_of_other_packets_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "ctl", 235) as (_, client):
        with pytest.raises(InvalidArgumentError, match="this endpoint carries UDP"):
            client.call(profile_ops.modify_format, number=1, mode="stev")
        for number in (0, 17):
            with pytest.raises(InvalidArgumentError, match=f"{number} is not in 1..16"):
                client.call(profile_ops.modify_format, number=number, mode="udp")
        with pytest.raises(InvalidArgumentError, match="state: 'upside'"):
            client.call(profile_ops.modify_format, number=1, state="upside")


def test_a_queue_pair_cannot_use_a_profile_that_is_not_online(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        with pytest.raises(InvalidArgumentError, match="INIT; queue pairs can use it when ONLINE"):
            client.call(profile_ops.use_profiles, ev=3)
        qp = pair.ends[0].qp
        with pytest.raises(InvalidArgumentError, match="chosen on the way to INIT"):
            qp.modify(ev_profile_id=3)
        qp.modify(state=QpState.RESET)
        attr, _ = qp.query()
        with pytest.raises(InvalidArgumentError, match="INIT; queue pairs can use it when ONLINE"):
            qp.modify(replace(attr, state=QpState.INIT, ev_profile_id=3))


def test_connections_that_name_no_profile_take_the_default(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        explicit(client, [refs(pair.contexts[0], plane)[0] for plane in range(2)])
        assert client.call(profile_ops.use_profiles, ev=1).default_ev == 1
        again(pair)
        assert len(pair.ends[0].qp.ev_states()) == 2


def test_a_congestion_control_profile_acts_on_the_connections_that_use_it(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        assert client.call(
            profile_ops.modify_cc, number=1, state="online", algorithm="uet-1.0-nscc", config={"max_cwnd": 65_536}
        ).config == {"max_cwnd": 65_536}
        again(pair, cc_profile_id=1)
        runtime = pair.contexts[0].nic.runtime
        peer = runtime.engine.peers[runtime.engine.qps[pair.ends[0].qp.row].peer]
        assert (peer.params, peer.max_cwnd) == (1, 65_536)
        client.call(profile_ops.modify_cc, number=1, config={"target_delay": 5_000})
        assert runtime.engine.params[1].target_delay == 5_000_000
        assert runtime.engine.params[0].target_delay != 5_000_000
        with pytest.raises(BusyError, match="1 queue pairs"):
            client.call(profile_ops.modify_cc, number=1, state="offline")
        with pytest.raises(InvalidArgumentError, match="algorithm: 'reno'"):
            client.call(profile_ops.modify_cc, number=2, algorithm="reno")
        with pytest.raises(InvalidArgumentError, match="no 'colour'"):
            client.call(profile_ops.modify_cc, number=2, config={"colour": 1})
        with pytest.raises(InvalidArgumentError, match=r"config\.gamma"):
            client.call(profile_ops.modify_cc, number=2, config={"gamma": float("nan")})


def test_an_ev_carries_data_when_neither_a_denial_nor_its_profile_forbids_it(tmp_path: Path) -> None:
    with with_profile(tmp_path / "ctl") as (pair, client, evs):
        row = pair.ends[0].qp.ev_states()[1]
        denial = Denial(port=2, ev=row.ev)

        def set_state(state: str) -> None:
            entries = [EvOpRequest(ev=evs[1], state=state)]
            client.call(profile_ops.modify_ev_profile, number=1, operation="state", entries=entries)

        def found() -> EvState:
            return pair.ends[0].qp.ev_states()[1].state

        client.call(endpoint_ops.deny, denials=[denial])
        set_state("denied")
        client.call(endpoint_ops.lift)
        assert found() == EvState.DENIED  # by the profile
        client.call(endpoint_ops.deny, denials=[denial])
        set_state("good")
        assert found() == EvState.DENIED  # by the lease
        client.call(endpoint_ops.lift)
        assert found() == EvState.GOOD


def test_denials_leave_a_path_to_a_connection_that_begins_later(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        evs = [refs(pair.contexts[0], plane)[0] for plane in range(2)]
        explicit(client, evs)
        first = [Denial(port=plane + 1, ev=pair.contexts[0].nic.sockets.evs(plane)[0]) for plane in range(2)]
        client.call(endpoint_ops.deny, denials=first)
        again(pair, ev_profile_id=1)
        states = [ev.state for ev in pair.ends[0].qp.ev_states()]
        assert sorted(states) == [EvState.GOOD, EvState.DENIED]
