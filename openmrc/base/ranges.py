"""Range checks of settings before a run, in which a wrong value could hang or be misinterpreted."""

import math

from openmrc.errors import ConfigError

ABOVE_ZERO = (math.ulp(0.0), math.inf)
AT_LEAST_ZERO = (0, math.inf)


def refuse_outside(settings: object, **ranges: tuple[float, float]) -> None:
    """Raise ConfigError for a field outside the two limits, both included, naming field and value."""
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        if not low <= value <= high:
            raise ConfigError(f"{name}: {value} is not {_words(low, high)}")


def _words(low: float, high: float) -> str:
    if (low, high) == ABOVE_ZERO:
        return "above 0"
    return f"at least {low:g}" if high == math.inf else f"in {_number(low)}..{_number(high)}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else f"{value:g}"
