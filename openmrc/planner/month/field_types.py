"""Values of what a job is asked about, which Python lets anybody set to anything."""

from __future__ import annotations

from dataclasses import fields
from numbers import Integral, Real
from typing import TYPE_CHECKING

from openmrc.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_EXPECTED = {"bool": (bool, "true or false"), "int": (Integral, "a whole number"), "float": (Real, "a number"),
             "str": (str, "a text")}  # fmt: skip


def check_types(described: DataclassInstance) -> None:
    """Refuse fields that are of another type than declared; numbers may be NumPy's. A `ConfigError` names the field."""
    for field in fields(described):
        value = getattr(described, field.name)
        kind, words = _EXPECTED.get(str(field.type), (object, ""))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
            raise ConfigError(f"{field.name.replace('_', '-')} = {value!r}; {words} is expected")
