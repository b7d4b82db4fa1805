"""Rates in text form: `800G`, `51.2T`."""

from __future__ import annotations

import re

from openmrc.errors import ConfigError

_RATE = re.compile(r"^(\d+(?:\.\d+)?)\s*([GMT])(?:b(?:it)?/?(?:p?s)?)?$", re.IGNORECASE)
_IN_GBPS = {"M": 0.001, "G": 1.0, "T": 1000.0}


def gbps(text: str) -> float:
    """Return a rate in Gb/s."""
    match = _RATE.match(text.strip())
    if match is None or float(match.group(1)) <= 0:
        raise ConfigError(f"{text!r} is not a rate; write a positive number with M, G or T, such as 800G or 51.2T")
    return round(float(match.group(1)) * _IN_GBPS[match.group(2).upper()], 9)
