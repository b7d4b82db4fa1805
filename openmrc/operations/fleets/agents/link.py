"""An agent's connection to its controller: TLS, the greeting, report after report; and again when it breaks.

The agent connects; nothing on a host listens. Of several controllers it keeps to the one that answers and goes round
when that is gone. Between two attempts it waits a drawn time below a limit that doubles up to `MOST_BACK_OFF_S`
(full jitter), so that hosts do not return all at once to a controller that was restarted.
"""

import random
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from openmrc.ctl.channel import Channel
from openmrc.ctl.messages import common_version
from openmrc.errors import MrcError, PeerError
from openmrc.operations.fleets.agents.certificates import CONTROLLER
from openmrc.operations.fleets.agents.host_agent import HostAgent
from openmrc.operations.fleets.agents.host_prober import HostProber
from openmrc.operations.fleets.agents.messages import (
    AGENTS_NEWEST,
    AGENTS_OLDEST,
    MOST_AGENT_GREETING,
    MOST_ORDERS,
    AgentGreeting,
    ControllerGreeting,
    HostOrders,
    unframed,
)
from openmrc.operations.fleets.lab_prober import hurry
from openmrc.version import __version__

CONNECT_S = 5.0
ANSWER_S = 10.0  # for orders
FIRST_BACK_OFF_S, MOST_BACK_OFF_S = 0.5, 30.0
TICK_S = 0.05

Address = tuple[str, int]


@dataclass
class BackOff:
    """How long to wait before the next attempt."""

    limit: float = FIRST_BACK_OFF_S

    def next(self) -> float:
        """Return a wait (s), and double the limit of the one after it."""
        drawn = random.uniform(0, self.limit)
        self.limit = min(MOST_BACK_OFF_S, 2 * self.limit)
        return drawn

    def reset(self) -> None:
        self.limit = FIRST_BACK_OFF_S


class AgentLink:
    """One TLS connection to a controller; close it."""

    def __init__(self, address: Address, tls: ssl.SSLContext, fabric: str) -> None:
        """Connect and greet; OSError (of which ssl.SSLError), PeerError, WireError."""
        raw = socket.create_connection(address, CONNECT_S)
        try:
            raw.settimeout(CONNECT_S)
            self._channel = Channel(tls.wrap_socket(raw, server_hostname=CONTROLLER))
        except BaseException:
            raw.close()
            raise
        try:
            self._greet(fabric)
        except BaseException:
            self.close()
            raise

    def exchange(self, agent: HostAgent) -> None:
        """Send a report and carry out the orders that answer it."""
        report = agent.report(time.monotonic())
        self._channel.send(report, ANSWER_S)
        body = self._channel.receive_frame(MOST_ORDERS, ANSWER_S, ANSWER_S)
        agent.obey(unframed(body, HostOrders), time.monotonic())

    def close(self) -> None:
        self._channel.close()

    def _greet(self, fabric: str) -> None:
        mine = AgentGreeting(oldest=AGENTS_OLDEST, newest=AGENTS_NEWEST, fabric=fabric, release=__version__)
        self._channel.send(mine, CONNECT_S)
        body = self._channel.receive_frame(MOST_AGENT_GREETING, CONNECT_S, CONNECT_S)
        theirs = unframed(body, ControllerGreeting)
        if theirs.refusal:
            raise PeerError(f"refused: {theirs.refusal}")
        common_version(theirs, AGENTS_OLDEST, AGENTS_NEWEST)


def run_agent(
    agent: HostAgent,
    prober: HostProber | None,
    controllers: Sequence[Address],
    connect: Callable[[Address], AgentLink],
    is_over: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Report to a controller as long as it is there, then to the next one, until it is over."""
    if prober is not None:
        hurry()
    back_off, turn = BackOff(), 0
    _spend(prober, back_off.next(), is_over)
    while not is_over():
        address = controllers[turn % len(controllers)]
        try:
            link = connect(address)
            say(f"connected to {address[0]}:{address[1]}")
            _serve(agent, prober, link, back_off, is_over)
        except (OSError, EOFError, MrcError) as error:
            say(f"{address[0]}:{address[1]}: {_reason(error)}")
            turn += 1
            _spend(prober, back_off.next(), is_over)


def _serve(
    agent: HostAgent, prober: HostProber | None, link: AgentLink, back_off: BackOff, is_over: Callable[[], bool]
) -> None:
    with closing(link):
        agent.begin()
        link.exchange(agent)
        while not is_over():
            back_off.reset()
            _spend(prober, agent.wait, is_over)
            link.exchange(agent)


def _spend(prober: HostProber | None, seconds: float, is_over: Callable[[], bool]) -> None:
    """Wait, and probe meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not is_over():
        due = TICK_S if prober is None else prober.step()
        time.sleep(max(0.0, min(left, due, TICK_S)))


def _reason(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "the controller closed the connection; what it prints says why"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error)
