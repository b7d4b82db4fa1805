"""Which functions of the package a user can reach: from the commands and the public Python names, by reading sources.

A rule of the specification counts as done when a program that a user runs goes through its code. Tests and benches
are no callers. The analysis errs on the side of reaching too much: a method counts as reached when its class is
reached and its name is used anywhere in reached code.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from openmrc.programs.main import COMMANDS, CommandGroup

PACKAGE = Path(__file__).parent.parent / "openmrc"


def _commands() -> Iterator[str]:
    """Yield the functions of the table of commands."""
    for section in COMMANDS.values():
        for command in section.values():
            for each in command.commands.values() if isinstance(command, CommandGroup) else [command]:
                yield f"openmrc.programs.{each.target.replace(':', '.')}"


# Names that programs of users start from: the command line and the modules of the public Python API.
ROOT_FUNCTIONS = (
    "openmrc.programs.main.main",
    *_commands(),
    "openmrc.programs.warm.main",
    *(
        f"openmrc.{world}.warm.warm" for world in ("planner", "live", "sim")
    ),  # named by `openmrc.programs.warm` when it runs
)
ROOT_MODULES = (
    "openmrc",
    "openmrc.api",
    "openmrc.verbs",
    "openmrc.wire.message",
    "openmrc.wire.srv6",
    "openmrc.wire.capture",
    "openmrc.train",
    "openmrc.train.group",
    "openmrc.train.torch_backend",
    "openmrc.train.torchft",
)

# Functions that no program reaches, by the beginning of their names below openmrc, and why each is there.
UNREACHED = {
    "core.kernel_type._constant": "Numba calls it, as its registration says",
    "api.Simulation._repr_html_": "a notebook calls it",
    "core.table_tuples.": "Numba calls what is registered there, while it compiles",
    "programs.training.measurement.seconds_in_place": "one measurement inside a job, for bench/train",
    "train.pytorch.": "the backend `mrc`: torch calls it",
}

_LAZY = re.compile(r"(?P<module>openmrc\.[\w.]+):(?P<names>\w+( \w+)*)$")  # "module:function", imported when called
_BUILTINS = frozenset(dir(builtins))


@dataclass
class Unit:
    """A function, a method, a class body or the top level of a module, with what its code mentions."""

    name: str  # dotted, below and with openmrc
    mentions: set[str] = field(default_factory=set)  # dotted names of the package
    attributes: set[str] = field(default_factory=set)  # names after a dot: methods, perhaps
    imports: set[str] = field(default_factory=set)  # modules
    is_function: bool = False


@dataclass
class Sources:
    """Every unit of the package, and what is registered with what."""

    units: dict[str, Unit] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # class -> its methods
    variants: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # generic kernel -> variants
    called_back: set[str] = field(default_factory=set)  # classes with a base of another library, which calls them


@functools.cache
def reached() -> frozenset[str]:
    """Return the dotted names of all units that a user's program can reach."""
    sources = _read()
    modules = [name for name in ROOT_MODULES if name in sources.units]
    waiting = [*ROOT_FUNCTIONS, *modules, *(f"{name}.*" for name in modules)]
    found: set[str] = set()
    used: set[str] = set()  # names after a dot, in reached code
    dormant: dict[str, set[str]] = defaultdict(set)  # methods of reached classes, by name, that nothing mentions yet
    while waiting:
        name = waiting.pop()
        if name.endswith(".*"):
            waiting.extend(_public(sources, name[:-2]))
        elif name in sources.units and name not in found:
            found.add(name)
            unit = sources.units[name]
            waiting.extend(unit.mentions | unit.imports | sources.variants[name] | {_module_of(name)})
            for attribute in unit.attributes - used:
                waiting.extend(dormant.pop(attribute, ()))
            used |= unit.attributes
            for method in sources.members.get(name, ()):
                if name in sources.called_back or _is_used(method, used):
                    waiting.append(method)
                else:
                    dormant[method.rpartition(".")[2]].add(method)
    return frozenset(found)


def functions() -> Iterator[str]:
    """Yield the dotted name of every function and method of the package."""
    sources = _read()
    for name, unit in sources.units.items():
        if unit.is_function:
            yield name


def _is_used(method: str, attributes: set[str]) -> bool:
    """Return whether a method of a reached class may be called: by name, or by Python itself."""
    name = method.rpartition(".")[2]
    return name in attributes or (name.startswith("__") and name.endswith("__"))


def _public(sources: Sources, module: str) -> set[str]:
    """Return what a public module offers: its own names without underscore, what Python calls, what it re-exports."""
    named = {name: name[len(module) :] for name in sources.units if name.rpartition(".")[0] == module}
    own = {name for name, own in named.items() if "._" not in own or (own.startswith(".__") and own.endswith("__"))}
    exported = sources.units[module].mentions
    methods = {
        method for name in own | exported for method in sources.members.get(name, ()) if "._" not in method[len(name) :]
    }
    return own | exported | methods


@functools.cache
def _module_of(name: str) -> str:
    while name and not _path_of(name).is_file():
        name = name.rpartition(".")[0]
    return name


@functools.cache
def _path_of(module: str) -> Path:
    parts = module.split(".")[1:]
    file = PACKAGE.joinpath(*parts[:-1], f"{parts[-1]}.py") if parts else PACKAGE / "__init__.py"
    return file if file.is_file() else PACKAGE.joinpath(*parts, "__init__.py")


@functools.cache
def _read() -> Sources:
    sources = Sources()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        _Reader(sources, module, ast.parse(path.read_text(encoding="utf-8"))).read()
    return sources


class _Reader:
    """Reads one module into units."""

    def __init__(self, sources: Sources, module: str, tree: ast.Module) -> None:
        self._sources = sources
        self._module = module
        self._tree = tree
        self._names: dict[str, str] = {}  # local name -> dotted name

    def read(self) -> None:
        for node in ast.walk(self._tree):
            self._note_import(node)
        for node in self._tree.body:
            for name in _defined(node):
                self._names[name] = f"{self._module}.{name}"
        top = self._unit(self._module)
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(node, f"{self._module}.{node.name}", top)
            elif isinstance(node, ast.ClassDef):
                self._class(node, f"{self._module}.{node.name}", top)
            else:
                names = list(_defined(node))
                self._mentions(node, self._unit(f"{self._module}.{names[0]}") if len(names) == 1 else top)
                if not isinstance(node, ast.Assign | ast.AnnAssign):
                    self._mentions(node, top)

    def _unit(self, name: str) -> Unit:
        return self._sources.units.setdefault(name, Unit(name))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, owner: Unit) -> None:
        unit = self._unit(name)
        unit.is_function = True
        for each in (*node.body, node.args, *([node.returns] if node.returns else [])):
            self._mentions(each, unit)
        for decorator in node.decorator_list:
            self._mentions(decorator, owner)
            self._register(decorator, name, owner)

    def _register(self, decorator: ast.expr, name: str, owner: Unit) -> None:
        """Note who calls a decorated function: the generic kernel it is a variant of, or a framework."""
        if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute):
            return
        if decorator.func.attr == "variant":
            self._sources.variants[self._dotted(decorator.func.value) or ""].add(name)
        else:  # a command, a callback, an event handler
            owner.mentions.add(name)

    def _class(self, node: ast.ClassDef, name: str, owner: Unit) -> None:
        unit = self._unit(name)
        self._sources.members.setdefault(name, set())
        for each in (*node.bases, *node.keywords, *node.decorator_list):
            self._mentions(each, unit)
        if any(self._dotted(base) is None and ast.unparse(base) not in _BUILTINS for base in node.bases):
            self._sources.called_back.add(name)
        for each in node.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(each, f"{name}.{each.name}", unit)
                self._sources.members[name].add(f"{name}.{each.name}")
            else:
                self._mentions(each, unit)

    def _mentions(self, node: ast.AST, unit: Unit) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id in self._names:
                unit.mentions.add(self._names[each.id])
            elif isinstance(each, ast.Attribute):
                unit.attributes.add(each.attr)
                if dotted := self._dotted(each):
                    unit.mentions.add(dotted)
            elif isinstance(each, ast.Import | ast.ImportFrom):
                unit.imports |= set(_imported(each).values())
                unit.mentions |= set(_imported(each).values())
            elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                self._note_text(each.value, unit)

    def _note_text(self, text: str, unit: Unit) -> None:
        unit.attributes.add(text)  # getattr by name
        if match := _LAZY.match(text):
            unit.mentions |= {match["module"], *(f"{match['module']}.{name}" for name in match["names"].split())}
        elif text.startswith("openmrc.") and _path_of(text).is_file():
            unit.mentions |= {text, f"{text}.warm"}

    def _dotted(self, node: ast.expr) -> str | None:
        """Return the dotted name of `module.thing`, None for anything else."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute) and (left := self._dotted(node.value)):
            return f"{left}.{node.attr}"
        return None

    def _note_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._names |= _imported(node)


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return local name -> dotted name, for names of the package."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name: alias.name for alias in node.names if alias.name.startswith("openmrc")}
    if node.module is None or node.level or not node.module.startswith("openmrc"):
        return {}
    return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def unexcused() -> list[str]:
    """Return the functions that no program reaches and UNREACHED does not explain."""
    lonely = sorted(name for name in functions() if name not in reached())
    return [name for name in lonely if not name.startswith(tuple(f"openmrc.{prefix}" for prefix in UNREACHED))]


def main() -> None:
    """Print them, for `make lint`; exit with code 1 if there are any."""
    for name in (found := unexcused()):
        sys.stderr.write(f"{name}: no command and no public name reaches it; delete it, or say why in UNREACHED\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
