"""Documents of users: size and shape limits, checked before parsing, and the JSON Schemas that they follow.

Shapes are checked without recursion: the loaders recurse for every bracket, and aliases make a small document huge.
"""

import json
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec
import yaml

from openmrc.base.yaml_mistakes import explained
from openmrc.errors import ConfigError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MOST_BYTES = 8 << 20  # of a YAML file; some 150,000 links of an irregular fabric
MOST_DUMP_BYTES = 64 << 20  # of what a switch dumps; the longest configuration this project writes has 1 MB
MOST_DEPTH = 32  # a scenario nests 7 levels, an EV profile 4
MOST_REPEATED = 100_000  # values that aliases may add to those in the text


def read_text(path: str | Path, most: int = MOST_BYTES, encoding: str = "utf-8") -> str:
    """Return a file's text; refuse one of more than `most` bytes without reading it completely."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ConfigError(f"{path}: larger than {most} bytes, the limit for this kind of file")
        return data.decode(encoding).replace("\r\n", "\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is 0x{data[error.start]:02x}"
        raise ConfigError(f"{path}: cannot be read: not {encoding.upper()} text, {byte}") from None


def check_shape(text: str, source: str) -> None:
    """Refuse text that is not YAML, whose keys are not different words, or whose shape would take too much.

    Nothing nests deeper than MOST_DEPTH, and aliases repeat no more than MOST_REPEATED values.
    """
    depth = 0
    sizes, keys = _Sizes(source), _Keys(source)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise ConfigError(f"{source}:{_line(event.start_mark)}: nested deeper than {MOST_DEPTH} levels")
            sizes.take(event)
            keys.take(event)
    except yaml.YAMLError as error:
        raise ConfigError(not_yaml(error, source, text)) from None


def not_yaml(error: Exception, source: str, text: str) -> str:
    """Describe where and why `text` is not YAML, and what to write."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line, why = explained(error, text)
        return f"{source}:{line}: not YAML: {why}"
    return f"{source}: not YAML: {' '.join(str(error).split())}"


def parse_json(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}:{error.lineno}: not JSON: {error.msg}") from None
    except ValueError as error:
        raise ConfigError(f"{source}: not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deep") from None


def _line(mark: Any) -> int:
    return int(mark.line) + 1 if mark is not None else 1


class _Sizes:
    """Counts the values of a document with every alias expanded."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[list[Any]] = []  # [anchor, values so far] of the enclosing collections
        self._known: dict[str | None, int] = {}  # number of values of an anchor
        self._repeated = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._repeat(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append([event.anchor, 1])
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = self._open.pop()
            self._known[anchor] = size
            self._add(size)
        elif isinstance(event, yaml.ScalarEvent):
            self._known[event.anchor] = 1
            self._add(1)

    def _repeat(self, event: Any) -> None:
        where = f"{self._source}:{_line(event.start_mark)}: *{event.anchor}"
        if any(anchor == event.anchor for anchor, _ in self._open):
            raise ConfigError(f"{where} contains itself")
        size = self._known.get(event.anchor, 0)  # the loader refuses unknown anchors
        self._repeated += size
        if self._repeated > MOST_REPEATED:
            raise ConfigError(f"{where}: aliases repeat more than {MOST_REPEATED} values; use fewer aliases")
        self._add(size)

    def _add(self, size: int) -> None:
        if self._open:
            self._open[-1][1] += size


class _Keys:
    """Refuses duplicate keys: YAML loaders silently use the last one."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[set[str] | None] = []  # the keys of the enclosing mappings; None for sequences
        self._is_key: list[bool] = []  # whether what comes next in each of them is a key

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._is_key.pop()
        elif isinstance(event, yaml.NodeEvent):
            if self._open and (keys := self._open[-1]) is not None:
                if self._is_key[-1]:
                    self._add(keys, event)
                self._is_key[-1] = not self._is_key[-1]
            if isinstance(event, yaml.CollectionStartEvent):
                self._open.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
                self._is_key.append(True)

    def _add(self, keys: set[str], event: Any) -> None:
        where = f"{self._source}:{_line(event.start_mark)}"
        if not isinstance(event, yaml.ScalarEvent):
            raise ConfigError(f"{where}: a key must be a word, not a list or mapping")
        if event.value in keys:
            raise ConfigError(f"{where}: key {event.value!r} is given twice")
        keys.add(event.value)


def schema_of(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a type. Its docstrings are dedented; from 3.13 on Python does that itself."""
    return {"$schema": DIALECT, **_dedented(msgspec.json.schema(kind))}


def schema_text(kind: type) -> str:
    """Return the JSON Schema of a type as a file's text, indented."""
    return msgspec.json.format(msgspec.json.encode(schema_of(kind)), indent=2).decode() + "\n"


def _dedented(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: cleandoc(each) if key == "description" and isinstance(each, str) else _dedented(each)
            for key, each in node.items()
        }
    return [_dedented(each) for each in node] if isinstance(node, list) else node
