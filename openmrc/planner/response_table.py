"""What each failure costs a collective, as measured by the packet simulator: `responses.json` beside this file.

A row holds the collective's time while the failure lasts, relative to its time before (`slow`), what it costs once
(`once_us`), and whether connections end in error (`stops`), at one or two sizes of the fabric; docs/month.md says how
it carries to another size. What was not measured is refused by name.
"""

from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from openmrc.errors import ConfigError

FILE = Path(__file__).with_name("responses.json")
ABOVE_T0 = ("fabric_link", "fabric_slow", "fabric_grey_1e-2", "t1")
MULTIPLANE = ("mrc", "uet")  # networks that run on as many planes as the job asks for
Count = Annotated[int, Meta(ge=1)]
Microseconds = Annotated[float, Meta(ge=-1e10, le=1e10)]  # what noise adds may be negative
Time = Annotated[float, Meta(gt=0, le=1e10)]
_MEASURE = "measure it with bench.jobs.responses"


class Response(Struct, frozen=True):
    """One measured point, the mean of its seeds."""

    network: str
    collective: str
    kind: str
    nics: Count
    slow: Annotated[float, Meta(gt=0, le=1e6)]
    once_us: Microseconds
    stops: bool
    seeds: Count


class Healthy(Struct, frozen=True):
    """The time of a collective without a failure."""

    network: str
    collective: str
    nics: Count
    took_us: Time


class Measurement(Struct, frozen=True):
    """When a network was measured, and with which simulator."""

    commit: str
    date: str


class Responses(Struct, frozen=True, dict=True):
    """The file."""

    command: str
    measured: dict[str, Measurement]  # by network
    machine: str
    message_bytes: Count
    nic_gbps: Annotated[float, Meta(gt=0)]  # of the NICs that were measured
    planes: Count  # of MRC and UET
    uplinks: dict[str, int]  # of a T0, by number of NICs
    reroute_us: Annotated[float, Meta(ge=0, le=1e10)]
    healthy: tuple[Healthy, ...]
    rows: tuple[Response, ...]

    def of(self, network: str, collective: str, kind: str) -> Response:
        """Return the row of the largest fabric; a `ConfigError` names what was not measured."""
        found = self._of_largest.get((network, collective, kind))
        if found is None:
            raise ConfigError(
                f"the table of responses does not cover {kind} of {network} with {collective}; {_MEASURE}"
            )
        return found

    @cached_property
    def _of_largest(self) -> dict[tuple[str, str, str], Response]:
        rows = sorted(self.rows, key=lambda row: row.nics)
        return {(row.network, row.collective, row.kind): row for row in rows}

    def check(self, network: str, nic_gbps: float, planes: int) -> None:
        """Refuse NICs of another rate than those that were measured, and of another number of planes."""
        if nic_gbps != self.nic_gbps:
            raise ConfigError(
                f"NICs of {nic_gbps:g}G: the table of responses was measured with {self.nic_gbps:g}G, and what a "
                f"failure costs depends on the rate; {_MEASURE} --gbps; --responses takes it"
            )
        if network in MULTIPLANE and planes != self.planes:
            raise ConfigError(
                f"{planes} planes: the table of responses was measured with {self.planes}, and what a failure costs "
                f"{network} depends on them; {_MEASURE} --planes; --responses takes it"
            )

    def congestion(self, network: str, collective: str) -> float:
        """Return the time of a collective without a failure, relative to the fastest network measured."""
        sizes = [row.nics for row in self.healthy if (row.network, row.collective) == (network, collective)]
        if not sizes:
            raise ConfigError(f"the table of responses does not cover {network} with {collective}; {_MEASURE}")
        measured = (collective, max(sizes))
        took = {row.network: row.took_us for row in self.healthy if (row.collective, row.nics) == measured}
        return took[network] / min(took.values())

    def slow(self, network: str, collective: str, kind: str, share: float | None = None) -> float:
        """Return how much longer a collective takes; `share`: of a T0's paths that the failure takes (0 to 1)."""
        row = self.of(network, collective, kind)
        if share is None or kind not in ABOVE_T0:
            return max(1.0, row.slow)
        return 1 + max(0.0, row.slow - 1) * min(1.0, share * self.uplinks[str(row.nics)])

    @property
    def networks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.network for row in self.healthy))


@cache
def responses(path: Path = FILE) -> Responses:
    """Read a table of responses, the package's own unless one is given."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Responses)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    for row in found.rows:
        if found.uplinks.get(str(row.nics), 0) < 1:
            raise ConfigError(f"{path}: uplinks: none of a T0 among {row.nics} NICs, for which {row.kind} was measured")
    return found
