"""The messages between an agent and a controller, inside TLS.

    agent (a host)                              controller
    AgentGreeting{oldest, newest, fabric}  ---->
                                 <----  ControllerGreeting{oldest, newest, refusal}
    HostReport{number, ...}     ----------->
                                 <----  HostOrders{heard = number, ...}
    ...                                         one report, one answer; `wait` says when the next one is due

Frames are those of the controller socket: a length of 4 bytes and MessagePack, maps with the names of their fields.
What a decoder does not know it leaves out, so a field may be added with a default; both sides name the versions that
they speak and the newest common one holds. A side may thus be a release older.

No message has a time of day, and no time of one host is compared with that of another. A lease counts from when the
agent sent the report that the orders answer, on the agent's clock: orders that were long under way are worth less, and
after a minute nothing.
"""

import hashlib
from typing import TypeVar

import msgspec

from openmrc.ctl.messages import SpokenVersions
from openmrc.errors import Malformed
from openmrc.fabric.model.topology import Topology

AGENTS_OLDEST, AGENTS_NEWEST = 1, 1  # versions that this release speaks; after a second one, keep two
MOST_AGENT_GREETING = 1 << 10  # bytes
MOST_REPORT = 1 << 22  # 60,000 paths
MOST_ORDERS = 1 << 22  # half a million links
MOST_ROWS = 1 << 16  # of each list of a report

M = TypeVar("M", bound=msgspec.Struct)


class AgentGreeting(SpokenVersions, kw_only=True):
    """The first frame of an agent, which its certificate identifies."""

    fabric: str  # digest of the topology: both must number links alike


class ControllerGreeting(SpokenVersions, kw_only=True):
    """The answer to a greeting: accepted, or refused with a reason."""

    refusal: str = ""  # why the connection ends now


class PathVote(msgspec.Struct, array_like=True):
    """What became of packets on one path since the report before."""

    plane: int
    links: list[int]  # of the plane, in order
    counted: int  # delivered and lost
    lost: int
    queued: int = 0  # of those counted, marked or trimmed


class LoopsSeen(msgspec.Struct, array_like=True):
    """What became of this host's loop probes in one plane: rows of the plan, as many above for those like data."""

    plane: int
    rows: list[int]
    lost: list[int]  # those of `rows` that did not return
    queued: list[int] = []  # those like data that returned marked or trimmed


class OneWays(msgspec.Struct, array_like=True):
    """One-way probes of one plane that were sent, or that arrived, under one number of their sender."""

    plane: int
    number: int
    rows: list[int]
    queued: list[int] = []  # those like data that arrived marked or trimmed


class HostReport(msgspec.Struct, kw_only=True):
    """What a host has seen since its last report."""

    number: int
    epoch: int = 0  # the greatest that one of its endpoints has seen
    endpoints: list[str] = []
    obeyed: int = 0  # the newest orders that all its endpoints follow
    kept: list[str] = []  # peers towards which a denial would have taken the last path
    late: bool = False  # lost on most planes at once: the host, not the network
    votes: list[PathVote] = []
    loops: list[LoopsSeen] = []
    sent: list[OneWays] = []
    arrived: list[OneWays] = []


class HostOrders(msgspec.Struct, kw_only=True):
    """Orders to a host, valid until the next ones."""

    heard: int  # number of the report that this answers
    number: int  # of this set of links; grows
    wait: float  # s until the next report
    epoch: int = 0  # 0: the controller has none yet, and orders nothing
    lease: float = 0.0  # s, from when the report was sent
    links: list[int] = []  # of the topology, to be denied
    unprobed: list[int] = []  # over which no probe shall be sent
    often: list[list[int]] = []  # by plane, rows of the plan to be sent often like data


def fabric_digest(topology: Topology) -> str:
    """Return what two sides compare to be sure that they number the links of a fabric alike."""
    digest = hashlib.sha256(topology.fabric.name.encode())
    for column in (topology.link_source, topology.link_destination, topology.link_plane, topology.link_port):
        digest.update(column.astype("<i8").tobytes())
    return digest.hexdigest()[:32]


def unframed(body: bytes, kind: type[M]) -> M:
    """Decode one message; Malformed if it is none of this kind."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{kind.__name__}: {error}") from error
