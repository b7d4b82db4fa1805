"""Units. Internally, time is integer picoseconds, size is bytes, rate is bits per second.

Names in files and options include the unit: `base_rtt_us`, `link_gbps`.
"""

PS_PER_NS = 1_000
PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000
NS_PER_S = 1_000_000_000

NEVER = 1 << 62  # ps; later than any time


def ps_from_us(us: float) -> int:
    """Return microseconds as picoseconds."""
    return round(us * PS_PER_US)


def us_from_ps(ps: int) -> float:
    """Return picoseconds as microseconds."""
    return ps / PS_PER_US
