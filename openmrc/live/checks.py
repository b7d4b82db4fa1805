"""Ranges of a context's attributes, checked before anything is opened."""

from openmrc.live.attributes import ContextAttr, EvFormat
from openmrc.live.errors import InvalidArgumentError

MOST_POLL_US = 1000  # a processor's time is worth more than any wake-up
MTUS = (256, 512, 1024, 2048, 4096)
RANGES = {
    "max_qp": (1, 1 << 16),
    "max_peers": (1, 1 << 12),
    "max_mr": (1, 1 << 20),
    "max_cq": (1, 1 << 17),
    "max_send_wr": (1, 1 << 16),
    "max_recv_wr": (1, 1 << 16),
    "max_wimm": (1, 1 << 16),
    "max_mpr": (1, 1 << 9),  # unit 128 PSNs
    "evs_per_plane": (1, 1 << 10),
    "receive_buffer": (1 << 12, 1 << 30),  # bytes
    "seed": (0, (1 << 63) - 1),
}


def check_attributes(attr: ContextAttr) -> None:
    """Raise EINVAL with name, value and range of the first invalid attribute."""
    for name, (least, most) in RANGES.items():
        value = getattr(attr, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgumentError(f"{name}: {value!r} is not an integer")
        if not least <= value <= most:
            raise InvalidArgumentError(f"{name}: {value} is not in {least}..{most}")
    if attr.poll_us is not None and not is_poll_time(attr.poll_us):
        raise InvalidArgumentError(f"poll_us: {attr.poll_us!r} is not a number of microseconds in 0..{MOST_POLL_US}")
    if attr.mtu not in MTUS:
        raise InvalidArgumentError(f"mtu: {attr.mtu!r} is not one of {', '.join(map(str, MTUS))}")
    if not isinstance(attr.ev_format, EvFormat):
        formats = ", ".join(f"EvFormat.{each.name}" for each in EvFormat)
        raise InvalidArgumentError(f"ev_format: {attr.ev_format!r} is not one of {formats}")


def is_poll_time(value: object) -> bool:
    """Whether `value` is a number of microseconds that a wait may poll."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_POLL_US
