"""What `mrc_ctl.h` asks of the engine and of the rules of profiles: entries of the native library, see `entries`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openmrc.core.object_code import WORD, WORDS
from openmrc.engine.paths import ports
from openmrc.live.datapath import event_loop, table_handles
from openmrc.live.datapath.libc import Words, monotonic
from openmrc.live.datapath.link_state import Fault, set_fault
from openmrc.profiles import event_ring


def enable_port(at: int, plane: int, enabled: int) -> int:
    """Set the admin state of a plane."""
    datapath = table_handles.datapath_at(at)
    event_loop.acquire(datapath)
    datapath.nic[0].now = monotonic(datapath.clock[0], datapath.nic[0].epoch)
    set_fault(table_handles.engine_at(at), datapath, plane, Fault.DISABLED.value, enabled == 0)
    event_loop.release(datapath)
    return 0


def ask(at: int, peer: int, plane: int, entropy: int, number: int, mask: int) -> int:
    """Queue a request of a controller, see `ports.ask`; return 0 without room."""
    datapath = table_handles.datapath_at(at)
    event_loop.acquire(datapath)
    done = ports.ask(table_handles.engine_at(at), peer, plane, entropy, number, mask)
    event_loop.release(datapath)
    return done


def push_event(ring: Words) -> int:
    """Return the place of a new event in a ring."""
    return event_ring.push(ring)


def lose_events(ring: Words, count: int) -> int:
    """Count events that were lost before they came to a ring."""
    event_ring.lose(ring, count)
    return 0


def take_event(ring: Words) -> int:
    """Return the place of the oldest event of a ring, or -1."""
    return event_ring.take(ring)


CTL_ENTRIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "enable_port": (enable_port, (WORD,) * 3),
    "ask": (ask, (WORD,) * 6),
    "push_event": (push_event, (WORDS,)),
    "lose_events": (lose_events, (WORDS, WORD)),
    "take_event": (take_event, (WORDS,)),
}
