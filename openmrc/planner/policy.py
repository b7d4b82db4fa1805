"""What the operator decides, and how fast the job comes back; every default says where it comes from."""

from dataclasses import dataclass, fields
from typing import NamedTuple

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import Basis
from openmrc.planner.rows import check_types


class Known(NamedTuple):
    """What people call a field of the policy, what its default rests on, and the range that sensitivity tries."""

    words: str
    basis: Basis
    low: float = 0
    high: float = 1
    unit: str = "s"


_PUBLISHED, _INFERRED, _OURS = Basis.PUBLISHED, Basis.INFERRED, Basis.OURS
KNOWN = {
    "detect_s": Known("detection time", _OURS, 3, 600),  # heartbeats; NCCL's watchdog in torch
    "diagnose_s": Known("diagnosis time", _INFERRED, 12, 600),  # MegaScale (NSDI 2024): below 10 minutes
    "restart_s": Known("restart time", _OURS, 20, 1800),
    "checkpoint_s": Known("checkpoint interval", _OURS, 60, 3600),
    "pause_s": Known("pause for a checkpoint", _OURS, 0, 30),
    "lag_s": Known("lag of a checkpoint", _OURS, 0, 600),
    "patience_s": Known("transport's retry time", _PUBLISHED, 3, 120),  # NCCL's defaults
    "reroute_s": Known("rerouting time", _OURS, 0.01, 3),
    "failover_s": Known("failover time of a bond", _PUBLISHED, 0.01, 3),  # Linux's bonding documentation: miimon
    "remap_s": Known("remap time of MRC", _PUBLISHED, 0.001, 30),  # arXiv 2605.04333
    "isolate_s": Known("time until a bad link is shut", _OURS, 10, 43_200),  # at most until its repair
    "spares": Known("spare hosts", _OURS, 0.001, 0.1, "of the hosts"),
    "swap": Known("swap degraded hosts", _OURS, unit=""),
    "evict": Known("evict degraded hosts", _OURS, unit=""),
    "most_lost": Known("planes a NIC may lose", _OURS, 1, 4, ""),  # what the built-in table covers
    "drain": Known("drain before maintenance", _OURS, unit=""),
}


@dataclass(frozen=True)
class Policy:
    """What the operator decides; times in seconds.

    The defaults make a stop cost about ten minutes, which ByteRobust's 97 % of effective time on 9,600 GPUs implies
    with the failure rates of Llama 3; how these minutes divide is an assumption.
    """

    detect_s: float = 30.0  # until a host's failure stops the job; assumption
    diagnose_s: float = 120.0  # until the failed host is known; MegaScale (NSDI 2024): below 10 minutes with detection
    restart_s: float = 180.0  # from then until steps continue; assumption
    checkpoint_s: float = 600.0  # between two checkpoints, and at least until the last can be restored; assumption
    pause_s: float = 2.0  # that the job waits for a checkpoint, 0: asynchronous altogether; assumption
    lag_s: float = 60.0  # until a checkpoint can be restored; assumption
    patience_s: float = 30.0  # RoCE: NCCL_IB_TIMEOUT 20 (4.3 s) x NCCL_IB_RETRY_CNT 7
    reroute_s: float = 0.1  # until routing avoids a dead link; docs/simulator/faults.md, Reaction of the baselines
    failover_s: float = 0.1  # until a bond stops using a dead port; Linux's miimon
    remap_s: float = 3.0  # MRC: until a NIC stops using a dead port; "typically a few seconds" (arXiv 2605.04333)
    isolate_s: float = 600.0  # until a link above T0 that slows the job more than its loss would is shut; assumption
    spares: float = 0.01  # hosts, as a share of the job's; assumption
    swap: bool = True  # replace degraded NICs' hosts whenever the job stops
    evict: bool = True  # and at a checkpoint, when they would cost more than the restart
    most_lost: int = 4  # planes; a NIC that loses more is replaced at once
    drain: bool = True  # move traffic away before maintenance

    def check(self) -> None:
        """Refuse values out of range, and policies that contradict each other."""
        check_types(self)
        if not 0 <= self.spares <= 1:
            raise ConfigError(f"spares = {self.spares:g}; a share of the job's hosts, 0 to 1, is allowed")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_s") and not 0 <= value <= 1e7:
                raise ConfigError(f"{field.name.replace('_', '-')} = {value:g}; 0 to 1e7 is allowed")
        if not self.checkpoint_s >= 1:
            raise ConfigError(f"checkpoint-s = {self.checkpoint_s:g}; at least 1 is allowed")
        if self.pause_s >= self.checkpoint_s:
            raise ConfigError(
                f"pause-s = {self.pause_s:g} with checkpoint-s = {self.checkpoint_s:g}: the job would only write"
            )
        if not 1 <= self.most_lost <= 15:
            raise ConfigError(f"most-lost = {self.most_lost}; 1 to 15 is allowed")
        if self.evict and not self.swap:
            raise ConfigError("evict without swap: a host that is evicted at a checkpoint is swapped at a stop, too")
