"""What the page draws: a picture of the fabric, sent once, and frames of what changes.

A fabric of 131,072 NICs has a million links. The page draws grids of cells: for every plane and tier one grid, a cell
for each link where they fit, otherwise a cell for several neighbouring ones, which shows their mean load and the worst
health among them. Both directions of a cable are one link here.
"""

from typing import Protocol

import msgspec

HEALTHS = ("up", "degraded", "drained", "down")  # the worse the later


class CellGrid(msgspec.Struct, kw_only=True):
    """The links of one plane between two tiers, as rows and columns of cells."""

    name: str  # NIC - T0
    plane: int  # from 0
    rows: int
    columns: int
    first_cell: int  # number of its first cell in a frame
    links_per_cell: int  # at most
    links: int


class Picture(msgspec.Struct, kw_only=True):
    """What a page shows of a source, and which actions it offers."""

    title: str
    kind: str  # simulation, host
    nics: int = 0
    switches: int = 0
    links: int = 0
    planes: int = 0
    grids: list[CellGrid] = []
    plane_names: list[str] = []
    actions: list[str] = []  # of break, degrade, drain, repair
    time_unit: str = "s"  # of the clock of frames
    verdicts_from: str = ""  # what localises faults here; empty: nothing does


class EvCell(msgspec.Struct, kw_only=True):
    """An EV of the chosen queue pair."""

    plane: int
    ev: int
    state: str
    active: bool = True
    path: str = ""
    sent: int = 0
    lost: int = 0


class PairLine(msgspec.Struct, kw_only=True):
    """A queue pair in the list."""

    name: str
    state: str
    gbps: float
    window: int = 0  # bytes
    rtt_us: float = 0.0
    bad: int = 0  # EVs that carry no data


class LogLine(msgspec.Struct, kw_only=True):
    """A line of the event log."""

    at: float  # on the clock of frames
    kind: str
    text: str


class VerdictLine(msgspec.Struct, kw_only=True):
    """What localisation says of one suspect."""

    suspect: str
    confidence: float
    votes: str  # the evidence


class Frame(msgspec.Struct, kw_only=True):
    """One moment."""

    number: int
    at: float  # in the picture's unit
    goodput: list[float]  # Gb/s of payload by plane, since the frame before
    load: list[int] = []  # by cell: percent of the rate, mean of its links
    health: list[int] = []  # by cell: index into HEALTHS, the worst of its links
    lost: int = 0  # packets, since the start
    pair: str = ""  # the chosen queue pair
    evs: list[EvCell] = []  # of it
    pairs: list[PairLine] = []
    events: list[LogLine] = []  # since the frame before
    verdicts: list[VerdictLine] = []
    finished: bool = False


class LinkDetail(msgspec.Struct, kw_only=True):
    """A link of a cell, for the one who points at it."""

    name: str  # h3<>p0-t0-01
    ends: list[str]  # names of NIC and switches
    health: str
    lost: int  # packets
    addresses: list[str]  # uSIDs and addresses of its ends


class PageAction(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Something to do to a link or switch."""

    verb: str  # break, degrade, drain, repair
    target: str  # a link's name, or a switch's


class PairChoice(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The queue pair whose EVs frames show."""

    pair: str


class PageSource(Protocol):
    """A running simulation, or the endpoints of a host. Methods may be called from any thread."""

    def picture(self) -> Picture:
        """Return what does not change."""

    def frame(self) -> Frame:
        """Advance by one frame's time and return what changed; called by one thread only."""

    def cell(self, number: int) -> list[LinkDetail]:
        """Return the links of a cell, at most some; ConfigError: there is no such cell."""

    def act(self, action: PageAction) -> str:
        """Do something; return a sentence about it. ConfigError: the target or verb is wrong."""

    def choose(self, pair: str) -> None:
        """Show the EVs of this queue pair from the next frame on; ConfigError: there is none of this name."""

    def close(self) -> None: ...
