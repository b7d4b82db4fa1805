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

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
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


def composed(text: str, source: str, loader: Any = LOADER) -> Any:
    """Return the root node of YAML text, None of nothing; refuse keys that are not different words.

    Nothing nests deeper than MOST_DEPTH, and aliases repeat no more than MOST_REPEATED values.
    """
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise ConfigError(f"{source}{_line(event)}: nested deeper than {MOST_DEPTH} levels")
        root = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ConfigError(not_yaml(error, source, text)) from None
    if root is not None:
        _count(root, source, {})
    return root


def constructed(root: Any, text: str, source: str, loader: Any = LOADER) -> Any:
    """Return what a root node of `composed` means; ConfigError for a number or date that is none."""
    try:
        return loader("").construct_document(root) if root is not None else None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(not_yaml(error, source, text)) from None


def _count(node: Any, source: str, known: dict[int, int]) -> int:
    """Return how many values a node has with every alias expanded; `known` are those of the nodes so far, by id."""
    if id(node) in known:
        if known[id(node)] == 0:
            raise ConfigError(f"{source}{_line(node)}: contains itself")
        return known[id(node)]
    known[id(node)] = 0
    if isinstance(node, yaml.MappingNode):
        _check_keys(node, source)
    below = [value for _, value in node.value] if isinstance(node, yaml.MappingNode) else node.value
    count = 1 + (0 if isinstance(node, yaml.ScalarNode) else sum(_count(each, source, known) for each in below))
    if count - len(known) > MOST_REPEATED:
        raise ConfigError(f"{source}{_line(node)}: aliases repeat more than {MOST_REPEATED} values; use fewer aliases")
    known[id(node)] = count
    return count


def _check_keys(mapping: yaml.MappingNode, source: str) -> None:
    """Refuse duplicate keys: YAML loaders silently use the last one."""
    keys = set()
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{source}{_line(key)}: a key must be a word, not a list or mapping")
        if key.value in keys:
            raise ConfigError(f"{source}{_line(key)}: key {key.value!r} is given twice")
        keys.add(key.value)


def _line(part: Any) -> str:
    return f":{part.start_mark.line + 1}"


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
