"""Packet handling of a switch port: classes, ECN marking, trimming. The lab and every export share it.

Classes of service are DSCPs (MRC 1.0 section 3.12 leaves the numbers to the operator). The target queue is a quarter of
the port's buffer, leaving the rest for bursts; marking begins at a fifth of that queue and is certain from four fifths
on (UEC 1.0.3 pp. 418-419). The last hop does not mark: its congestion is the receiver's, not the path's.
"""

import re
import string
from dataclasses import dataclass

from openmrc.errors import ConfigError

INTERFACE = "mrc{nic}p{plane}"  # the default
LONGEST = 15  # characters: IFNAMSIZ of Linux without the final zero


def fields_of(pattern: str) -> set[str]:
    """Return the names in braces; ConfigError if the braces do not match."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None}
    except ValueError as error:
        raise ConfigError(f"interface name {pattern!r}: {error}; write {{nic}} and {{plane}}") from None


def check_interface(pattern: str, nics: int, planes: int, place: str) -> None:
    """Refuse names that two ports of a machine would share, or that Linux does not allow.

    `nics` and `planes` count what a machine has; nothing is enumerated, so they may be as large as a file says.
    """
    numbered = {name for name, count in (("nic", nics), ("plane", planes)) if count > 1}
    runs_together = nics > 10 and planes > 10 and re.search(r"\}\d*\{", pattern)  # with less, one has a fixed width
    if runs_together or not numbered <= fields_of(pattern):
        remedy = "write {nic} and {plane}, not side by side"
        raise ConfigError(f"{place}: {pattern!r} names several ports of a machine alike; {remedy}")
    name = pattern.format(host=0, nic=nics - 1, plane=planes - 1)
    if len(name) > LONGEST:
        raise ConfigError(f"{place}: {name!r} has {len(name)} characters; Linux allows {LONGEST}")


DEFAULT_BUFFER = 256 << 10  # bytes of a port without a given limit
_QUEUE_SHARE = 4  # share of a port's buffer that ECN keeps the queue in
_CONTROL_SHARE = 2  # buffers: beyond this, control and trimmed packets alone have exceeded the port's rate for a while


@dataclass(frozen=True, kw_only=True)
class Dscp:
    """DSCPs of the classes of service; MRC leaves them to the operator (section 3.12), these are common values."""

    control: int = 46
    trimmable: int = 4
    trimmable_again: int = 8
    trimmed: int = 12
    trimmed_last_hop: int = 16


@dataclass(frozen=True, kw_only=True)
class PortSettings:
    """Settings of a port: thresholds in bytes of queue, shares of packets 0 to 1."""

    rate: int  # bit/s; 0: no virtual queue
    mark_low: int = 0  # some packets are marked from here on,
    mark_high: int = 0  # all from here on; 0: none
    trim_above: int = 0  # 0: never
    drop_above: int = 0  # 0: never
    control_drop_above: int = 0  # of control and trimmed packets; 0: never
    is_last_hop: bool = False
    keep: int = 64  # bytes after the IPv6 header: UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, and 20 to spare
    dscp: Dscp = Dscp()
    down: bool = False
    loss: float = 0.0
    trim: float = 0.0
    corruption: float = 0.0


def queue_bytes(buffer: int) -> int:
    """Return the target queue of ECN and congestion control; `buffer` is the port's, in bytes."""
    return buffer // _QUEUE_SHARE


def switch_port(rate: int, buffer: int, is_last_hop: bool, trimming: bool) -> PortSettings:
    """Return the settings of a healthy switch port; `rate` in bit/s, `buffer` in bytes (0: unknown).

    A full buffer trims trimmable packets and drops the rest; without trimming it drops all, at the same length. Control
    and trimmed packets have as much again.
    """
    buffer = buffer or DEFAULT_BUFFER
    queue = queue_bytes(buffer)
    return PortSettings(
        rate=rate,
        mark_low=0 if is_last_hop else queue // 5,
        mark_high=0 if is_last_hop else queue * 4 // 5,
        trim_above=buffer if trimming else 0,
        drop_above=buffer,
        control_drop_above=_CONTROL_SHARE * buffer,
        is_last_hop=is_last_hop,
    )
