"""What `mrc_ctl.h` asks of the engine and of the rules of profiles: entries of the native library, see `entries`."""

from collections.abc import Callable
from typing import Any

from openmrc.core.calls import MATRIX, WORD, WORDS
from openmrc.ctl.profiles import ev_generation, ev_rules, event_ring, field_rules, states
from openmrc.engine.congestion import qpcc
from openmrc.engine.paths import ev_states, ports
from openmrc.engine.state.machines import EvEvent
from openmrc.engine.state.tables import NONE
from openmrc.live.datapath import handles
from openmrc.live.datapath.libc import Words
from openmrc.live.datapath.loop.link_state import set_fault
from openmrc.wire.layout import Matrix


def note_fault(at: int, plane: int, fault: int, is_there: int) -> int:
    """Note or clear a fault of a plane, see `link_state.set_fault`."""
    set_fault(handles.engine_at(at), handles.datapath_at(at), plane, fault, is_there != 0)
    return 0


def ask(at: int, peer: int, plane: int, entropy: int, number: int, mask: int) -> int:
    """Queue a request of a controller, see `ports.ask`; return 0 without room."""
    return ports.ask(handles.engine_at(at), peer, plane, entropy, number, mask)


def lose_events(ring: Words, count: int) -> int:
    """Count events that were lost before they came to a ring."""
    event_ring.lose(ring, count)
    return 0


def turn_ev(at: int, qp: int, value: int, event: int) -> int:
    """Have something happen to an EV of a queue pair, see `paths.transition`; return 0 if it has none of this value."""
    engine = handles.engine_at(at)
    ev = ev_states.find(engine, qp, value)
    if ev != NONE:
        ev_states.transition(engine, handles.datapath_at(at).nic[0].now, ev, event)
    return int(ev != NONE)


def exchange_ev(at: int, qp: int, value: int, new: int) -> int:
    """Replace an EV of a queue pair; return 0 if it has none of this value, or has the new one already."""
    engine = handles.engine_at(at)
    ev = ev_states.find(engine, qp, value)
    done = ev != NONE and ev_states.find(engine, qp, new) == NONE
    if done:
        ev_states.transition(engine, handles.datapath_at(at).nic[0].now, ev, EvEvent.ALLOW.value)
        ev_states.exchange(engine, ev, new)
    return int(done)


def keep_active(at: int, qp: int, count: int) -> int:
    """Set how many EVs of a queue pair stay in use whatever their state."""
    handles.engine_at(at).qps[qp].min_active_evs = count
    return 0


def control_window(at: int, peer: int, params: int, is_first: int) -> int:
    """Put the window of a peer under a row of parameters; it begins anew if no other connection shares it."""
    engine = handles.engine_at(at)
    engine.peers[peer].params = params
    if is_first != 0:
        qpcc.begin(engine, handles.datapath_at(at).nic[0].now, peer)
    return 0


def order_evs(order: Matrix, lengths: Words, seed: int) -> int:
    """Order the EVs of all ports, see `ev_generation`."""
    ev_generation.in_turn(order, lengths, seed)
    return 0


CTL_RULES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "push_event": (event_ring.push, (WORDS,)),
    "lose_events": (lose_events, (WORDS, WORD)),
    "take_event": (event_ring.take, (WORDS,)),
    "change_verdict": (states.change_verdict, (WORD,) * 5),
    "missing_verdict": (states.missing_verdict, (WORD,) * 4),
    "widths_verdict": (field_rules.widths_verdict, (WORDS, WORD)),
    "fields_verdict": (field_rules.fields_verdict, (MATRIX, WORDS)),
    "ev_verdict": (field_rules.ev_verdict, (MATRIX, WORD, WORD)),
    "expand_ev": (field_rules.expanded, (MATRIX, WORDS, WORD, WORD)),
    "contract_ev": (field_rules.contracted, (MATRIX, WORDS, WORD, WORD)),
    "order_evs": (order_evs, (MATRIX, WORDS, WORD)),
    "attributes_verdict": (ev_rules.attributes_verdict, (WORD,) * 5 + (WORDS,)),
    "array_source": (ev_rules.array_source, (WORD,) * 3),
    "operation_verdict": (ev_rules.operation_verdict, (WORD,) * 3),
    "entry_verdict": (ev_rules.entry_verdict, (WORD,) * 4),
    "lesson": (ev_rules.lesson, (WORD,) * 6),
}
CTL_OPERATIONS = (note_fault, ask, turn_ev, exchange_ev, keep_active, control_window)  # with the loop lock held
