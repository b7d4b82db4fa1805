"""A NIC described by a file, which `MRC_NIC` names: its addresses, its paths and the tuning for its network.

`mrc lab exec` sets it, so that commands inside a lab need no options.
"""

import os
from pathlib import Path

import msgspec

from openmrc.engine.state.params import Settings
from openmrc.errors import ConfigError

VARIABLE = "MRC_NIC"
TOKEN_VARIABLE = "MRC_TOKEN"  # what a lab sets beside the file: the token that its hosts share,
BIND_VARIABLE = "MRC_BIND"  # and the addresses that listening commands bind
EVERYWHERE = "all"  # of BIND_VARIABLE: all addresses of this machine


class NicFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One NIC, its planes in order."""

    name: str
    planes: list[str]  # own address on each plane
    carriers: list[dict[str, list[str]]]  # per plane: remote address -> the addresses that lead there, one per path
    link_gbps: float  # all planes together
    base_rtt_us: float  # unloaded, longest path
    target_delay_us: float  # target queueing delay
    trimming: bool  # whether switches trim

    @property
    def evs_per_plane(self) -> int:
        """Return as many EVs as a plane has paths: two EVs on one path would each have to detect its failure."""
        return max([len(ways) for plane in self.carriers for ways in plane.values()], default=1)

    def carrier_of(self, address: str, plane: int, ev: int) -> str:
        """Return the address that leads to `address` on an EV: the EVs of a plane use its paths round-robin."""
        ways = self.carriers[plane].get(address)
        if ways is None:
            raise ConfigError(f"{self.name}: no path to {address} on plane {plane}")
        return ways[ev % len(ways)]

    def settings(self, mtu: int) -> Settings:
        """Return the engine's tuning for this network."""
        return Settings(
            mtu=mtu,
            link_gbps=self.link_gbps,
            base_rtt_us=self.base_rtt_us,
            base_rtt_measured=False,
            target_delay_us=self.target_delay_us,
            trimming=self.trimming,
            timestamp_unit=1,
            share_by_delay=True,
        )


def from_environment() -> NicFile | None:
    """Return the NIC file that the environment names; None if it names none."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=NicFile)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{VARIABLE}={path}: cannot be read: {error}") from error
