"""Names of a machine's interfaces: a pattern such as `enp{nic}s0f{plane}np0`, checked before it is used."""

from __future__ import annotations

import re
import string

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
