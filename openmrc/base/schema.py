"""JSON Schemas of typed structs, with the same text on every Python."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a type. Its docstrings are dedented; from 3.13 on Python does that itself."""
    return {"$schema": DIALECT, **_dedented(msgspec.json.schema(kind))}


def text_of(kind: type) -> str:
    """Return the schema as a file's text, indented."""
    return msgspec.json.format(msgspec.json.encode(schema_of(kind)), indent=2).decode() + "\n"


def _dedented(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: cleandoc(each) if key == "description" and isinstance(each, str) else _dedented(each)
            for key, each in node.items()
        }
    return [_dedented(each) for each in node] if isinstance(node, list) else node
