"""Mutants made by machine: one small change to a function of the engine, the wire or the EV and congestion profiles.

The kinds are those of Offutt et al., "An experimental determination of sufficient mutant operators" (TOSEM 1996), as
far as Python has them: a relation, a constant, a sign, a mask or shift, a statement left out, operands swapped.
"""

from __future__ import annotations

import ast
import random
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from spec.mutation import ROOT, Mutant, source_of

FOLDERS = ("engine", "wire", "ctl/profiles")
# Readers of captures are no rules of the protocol, and a prefetch changes no result.
LEFT_OUT = ("wire.wireshark", "wire.pcapng", "wire.capture", "wire.srv6", "engine.requester.prefetch")
_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_SIGNS: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*"}
_MASKS: dict[type[ast.operator], str] = {
    ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "|", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_ORDERED = (ast.Sub, ast.FloorDiv, ast.Div, ast.Mod, ast.LShift, ast.RShift)


class MutationKind(Enum):
    """What is changed."""

    COMPARISON = "comparison"
    CONSTANT = "constant"
    SIGN = "sign"
    MASK = "mask"
    DROPPED = "dropped statement"
    SWAPPED = "swapped operands"


@dataclass(frozen=True)
class MutationSite:
    """One change that can be made to a file."""

    module: str  # below openmrc
    kind: MutationKind
    line: int
    column: int
    before: str
    after: str
    begin: int  # offsets in the bytes of the source
    end: int
    statement: range  # lines of the statement, of a compound one of its head

    @property
    def place(self) -> str:
        """Where it is, and what becomes of what stands there."""
        return (
            f"{self.module}:{self.line}:{self.column} {' '.join(self.before.split())} -> {' '.join(self.after.split())}"
        )

    @property
    def path(self) -> Path:
        """The file."""
        return source_of(self.module)

    @property
    def is_python(self) -> bool:
        """Whether the changed file can be parsed."""
        try:
            ast.parse(self.mutant().new)
        except SyntaxError:
            return False
        return True

    def mutant(self) -> Mutant:
        """Return the whole module with this change."""
        source = source_of(self.module).read_bytes()
        changed = source[: self.begin] + self.after.encode() + source[self.end :]
        return Mutant(clause="", module=self.module, old=source.decode(), new=changed.decode())


def drawn(count: int, seed: int) -> list[MutationSite]:
    """Return so many sites, one of each kind in turn; a kind of which all are drawn is left out from then on."""
    left: dict[MutationKind, list[MutationSite]] = defaultdict(list)
    for site in sites():
        left[site.kind].append(site)
    chance = random.Random(seed)
    for found in left.values():
        chance.shuffle(found)
    chosen: list[MutationSite] = []
    while len(chosen) < count and any(left.values()):
        round_ = [left[kind].pop() for kind in MutationKind if left.get(kind)]
        chosen += [site for site in round_ if site.is_python]
    return chosen[:count]


def sites() -> Iterator[MutationSite]:
    """Yield every change that can be made, in order of files and lines."""
    for folder in FOLDERS:
        for path in sorted((ROOT / "openmrc" / folder).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT / "openmrc").with_suffix("").parts)
            if path.name != "__init__.py" and module not in LEFT_OUT:
                yield from sites_of(module, path.read_bytes())


def sites_of(module: str, source: bytes) -> list[MutationSite]:
    """Return the changes that can be made to the functions of a file, in its order."""
    return _Finder(module, source).sites()


def _statements(tree: ast.Module) -> dict[int, range]:
    """Return the lines of the innermost statement at each line: what runs when that line does."""
    found = {}
    for node in ast.walk(tree):  # from the outside in
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            first = body[0] if body else None
            inner = first.pattern if isinstance(first, ast.match_case) else first
            end = node.end_lineno or node.lineno
            lines = range(node.lineno, max(inner.lineno, node.lineno + 1) if inner is not None else end + 1)
            found.update(dict.fromkeys(range(node.lineno, end + 1), lines))
    return found


class _Finder:
    """Finds the sites of one file."""

    def __init__(self, module: str, source: bytes) -> None:
        self._module, self._source = module, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def sites(self) -> list[MutationSite]:
        """Return the sites within functions."""
        found = []
        tree = ast.parse(self._source)
        self._statements = _statements(tree)
        typed = [node.annotation for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]
        never_run = {node for annotation in typed for node in ast.walk(annotation)}
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for statement in function.body:
                    for node in ast.walk(statement):
                        if node not in never_run:
                            found += [site for site in self._of(node) if site is not None]
        return sorted(set(found), key=lambda site: (site.begin, site.end, site.kind.value))

    def _of(self, node: ast.AST) -> Iterator[MutationSite | None]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _RELATIONS:
                yield self._between(MutationKind.COMPARISON, left, right, _RELATIONS[type(op)])
            case ast.Constant(value=bool() as value):
                yield self._site(MutationKind.CONSTANT, node, str(not value))
            case ast.Constant(value=int() as value):
                yield self._site(MutationKind.CONSTANT, node, str(value + 1))
            case ast.BinOp(left=left, op=op, right=right):
                for kind, table in ((MutationKind.SIGN, _SIGNS), (MutationKind.MASK, _MASKS)):
                    if type(op) in table:
                        yield self._between(kind, left, right, table[type(op)])
                if isinstance(op, _ORDERED):
                    yield self._swapped(left, right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield self._site(MutationKind.SIGN, node, f"({self._text(operand)})")
            case ast.Call(func=ast.Name(id="min" | "max")):
                return  # the same in any order
            case ast.Call(args=[first, second, *_]) if not isinstance(second, ast.Starred):
                yield self._swapped(first, second)
            case ast.Assign() | ast.AugAssign():
                yield self._site(MutationKind.DROPPED, node, "pass")
            case ast.Expr(value=ast.Call()):
                yield self._site(MutationKind.DROPPED, node, "pass")

    def _swapped(self, first: ast.expr, second: ast.expr) -> MutationSite | None:
        begin, end = self._begin(first), self._end(second)
        between = self._source[self._end(first) : self._begin(second)].decode()
        one, other = self._text(first), self._text(second)
        if one == other:
            return None
        return self._made(MutationKind.SWAPPED, begin, end, f"({other}){between}({one})")

    def _between(self, kind: MutationKind, left: ast.expr, right: ast.expr, operator: str) -> MutationSite | None:
        begin, end = self._end(left), self._begin(right)
        found = self._source[begin:end].decode()
        old = found.strip("() \n\\")
        return self._made(kind, begin, end, found.replace(old, operator, 1)) if old else None

    def _site(self, kind: MutationKind, node: ast.AST, after: str) -> MutationSite | None:
        return self._made(kind, self._begin(node), self._end(node), after)

    def _made(self, kind: MutationKind, begin: int, end: int, after: str) -> MutationSite:
        line = bisect(self._starts, begin)
        column = begin - self._starts[line - 1] + 1
        before = self._source[begin:end].decode()
        return MutationSite(self._module, kind, line, column, before, after, begin, end, self._statements[line])

    def _text(self, node: ast.AST) -> str:
        return self._source[self._begin(node) : self._end(node)].decode()

    def _begin(self, node: ast.AST) -> int:
        return self._starts[getattr(node, "lineno", 1) - 1] + int(getattr(node, "col_offset", 0))

    def _end(self, node: ast.AST) -> int:
        return self._starts[getattr(node, "end_lineno", 1) - 1] + int(getattr(node, "end_col_offset", 0))
