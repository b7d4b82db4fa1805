"""Read YAML files into typed structs; every error names file, line, field and the allowed values."""

import functools
import re
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import yaml

from openmrc.base.documents import composed, constructed, read_text
from openmrc.base.yaml_words import explained
from openmrc.errors import ConfigError

_T = TypeVar("_T")
_PLACE = re.compile(r" - at `(\$[^`]*)`$")
_BOOL, _FLOAT, _DATE, _TEXT = (f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "timestamp", "str"))
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class _Loader(yaml.CSafeLoader):
    """Reads words and numbers as YAML 1.2: in 1.1 the key `on` of a fault is true, and 1e-3 a word."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag not in (_BOOL, _DATE)]
    for first, known in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_FLOAT, re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789"))


class Where(Protocol):
    """Finds the line of a place such as "$.planes[0].t0", and of the keys below with which a message begins."""

    def __call__(self, place: str, said: str = "") -> str:
        """Return FILE:LINE, as deep as the document has it."""


def decode(path: str | Path, kind: type[_T]) -> _T:
    """Read one YAML document into `kind`; unknown keys and invalid values are errors."""
    return decode_text(read_text(path), kind, str(path))


def decode_text(text: str, kind: type[_T], source: str) -> _T:
    """Decode YAML text into `kind`; `source` is its name in errors."""
    return decode_placed(text, kind, source)[0]


def decode_placed(text: str, kind: type[_T], source: str, as_text: str = "") -> tuple[_T, Where]:
    """Decode YAML text, and also return the function that locates a place in the text, for later errors.

    `as_text` names a list, such as "profile.evs", whose entries are text even where they look like numbers.
    """
    root = composed(text, source, _Loader)
    _keep_as_text(functools.reduce(lambda node, key: _below(node, key, ""), as_text.split("."), root))
    data = constructed(root, text, source, _Loader)
    try:
        return msgspec.convert(data, kind), lambda place, said="": source + _line_of(root, f"{said} - at `{place}`")
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}{_line_of(root, str(error))}: {explained(str(error), data, kind)}") from None


def _keep_as_text(entries: Any) -> None:
    for each in entries.value if isinstance(entries, yaml.SequenceNode) else ():
        if isinstance(each, yaml.ScalarNode):
            each.tag = _TEXT


def _line_of(root: Any, message: str) -> str:
    """Return ":LINE" of the place a msgspec message names, as far down as the document has it.

    A message may begin with the keys below that place, as in "senders: 99 is more than there are".
    """
    place = _PLACE.search(message)
    steps = _STEP.findall(place.group(1)) if place else []
    node = root
    for key, index in steps:
        below = _below(node, key, index)
        if below is None:
            break
        node = below
    for word in message.split(": ")[:-1]:
        node = _below(node, word.partition(",")[0], "") or node
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown and isinstance(node, yaml.MappingNode):
        for key_node, _ in node.value:
            if key_node.value == unknown.group(1):
                return f":{key_node.start_mark.line + 1}"
    return f":{node.start_mark.line + 1}" if node is not None else ""


def _below(node: Any, key: str, index: str) -> Any:
    if isinstance(node, yaml.MappingNode) and key:
        return next((value for name, value in node.value if name.value == key), None)
    if isinstance(node, yaml.SequenceNode) and index.isdigit():
        return node.value[int(index)]
    return None
