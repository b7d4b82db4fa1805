"""Mutants of the engine: run the conformance tests against an endpoint with one rule broken.

The tester is loaded first; then the modules of the endpoint are loaded a second time, one of them with changed source.
Both run in a child process, in virtual time, so the outcome is the same on any machine.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from openmrc.conform.devices import virtual
from openmrc.conform.execution import TestExecution
from openmrc.conform.language import Level, PartOfDevice, ScriptTest
from openmrc.conform.media.medium import VirtualMedium
from spec.changed_import import ChangedModule

ROOT = Path(__file__).parent.parent
MUTANTS = ROOT / "spec" / "mutants.toml"
SECONDS = 15.0  # of a processor that a test may take: with a fault that floods the network one took 9 on a slow day
ALL_SECONDS = 300  # of a processor that all tests of a mutant may take
HANGS = "hangs"
_LONGER = 2  # times as long may those of LONG take, of which one took 8.9 s on that day
LONG = frozenset(("table-8-1/1", "9.3.2/1", "9.3.1/4"))  # thousands of packets: half the time of all tests together
DEFAULTS: Mapping[str, Any] = {}  # the settings of a device that changes none
# What is loaded a second time: the endpoint. The tester keeps the modules that it has.
RELOADED = (
    "openmrc.engine.",
    "openmrc.ctl.profiles.",
    "openmrc.wire.headers",
    "openmrc.wire.layout",
    "openmrc.wire.codec",
    "openmrc.wire.icrc",
    "openmrc.conform.devices.virtual",
)


class MutantConsequence(msgspec.Struct, frozen=True):
    """Tests of other clauses that must notice a mutant, and why."""

    why: str
    tests: str  # ids, or * for whatever notices

    def covers(self, test: str) -> bool:
        """Whether a test is one of them."""
        return self.tests == "*" or test in self.tests.split()


class Mutant(msgspec.Struct, frozen=True):
    """One rule broken, and what notices it."""

    clause: str
    module: str  # below openmrc
    old: str  # stands in its source once
    new: str
    survives: str = ""  # why no test of its clause notices it
    follow: tuple[MutantConsequence, ...] = ()  # what notices it besides the tests of its clause

    @property
    def key(self) -> str:
        """What identifies it in kept results: it changes with the mutant, not with its place in the file."""
        return sha256("\0".join((self.clause, self.module, self.old, self.new)).encode()).hexdigest()[:12]


class TestHangsError(BaseException):
    """A test took longer than `SECONDS`; no handler of the tester may take it for something else."""

    __test__ = False


def read_mutants() -> list[Mutant]:
    """Return the mutants in the order of the file."""
    document = tomllib.loads(MUTANTS.read_text(encoding="utf-8"))
    return msgspec.convert(document["mutant"], list[Mutant])


def source_of(module: str) -> Path:
    """Return the file of a module below openmrc."""
    return ROOT / "openmrc" / f"{module.replace('.', '/')}.py"


def mutated(mutant: Mutant) -> str:
    """Return the source of the mutant's module; ValueError if what it changes is not there once."""
    text = source_of(mutant.module).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.module}: {mutant.old!r} stands there {text.count(mutant.old)} times")
    return text.replace(mutant.old, mutant.new)


def _load_endpoint(mutant: Mutant) -> type[virtual.VirtualDevice]:
    """Load the endpoint with a mutant; if the mutant is in what the tester alone uses, the tester as well."""
    name = f"openmrc.{mutant.module}"
    changed = ChangedModule(name, mutated(mutant), str(source_of(mutant.module)))
    is_of_endpoint = name.startswith(RELOADED)
    forget(RELOADED if is_of_endpoint else ("openmrc.", "spec.mutation"))
    changed.install()
    if not is_of_endpoint:
        importlib.import_module("spec.mutation")
    device: type[virtual.VirtualDevice] = importlib.import_module("openmrc.conform.devices.virtual").VirtualDevice
    return device


def forget(prefixes: tuple[str, ...]) -> None:
    """Have modules loaded again when they are imported next."""
    for name in [each for each in sys.modules if each.startswith(prefixes)]:
        parent, _, child = name.rpartition(".")
        del sys.modules[name]
        if hasattr(sys.modules.get(parent), child):  # `from package import module` would find the old one
            delattr(sys.modules[parent], child)


def outcome(
    test: ScriptTest,
    device: type[virtual.VirtualDevice] = virtual.VirtualDevice,
    settings: Mapping[str, Any] = DEFAULTS,
) -> str:
    """Return what a test comes to with fresh devices of this kind, in one word and what it observed.

    `settings` are those of the engine that are not its defaults.
    """
    count = 2 if test.part == PartOfDevice.BOTH else 1
    devices = [device(side, 1 + side, **settings) for side in range(count)]
    try:
        result = TestExecution(test, VirtualMedium(devices), devices).run()
    except TestHangsError:
        return HANGS
    except Exception as error:  # the mutant broke the endpoint itself
        return f"{type(error).__name__}"
    observed = f" {sorted(result.observed.items())}" if test.level == Level.INFO and not result.failure else ""
    return f"{result.verdict.value} {result.is_as_ours}{observed}"


def outcomes_of(mutant: Mutant, tests: Iterable[ScriptTest]) -> dict[str, str]:
    """Return what the tests come to against a mutant, in a child process."""
    return dict(_outcomes(mutant, tests))


def first_noticing(
    mutant: Mutant, tests: Sequence[ScriptTest], unbroken: dict[str, str], settings: Mapping[str, Any] = DEFAULTS
) -> str | None:
    """Return the first test whose outcome a mutant changes, also because it cannot be loaded; None if none does."""
    seen = 0
    for name, found in _outcomes(mutant, tests, settings):
        if found != unbroken[name]:
            return name
        seen += 1
    return tests[seen].id if seen < len(tests) else None


def _outcomes(
    mutant: Mutant, tests: Iterable[ScriptTest], settings: Mapping[str, Any] = DEFAULTS
) -> Iterator[tuple[str, str]]:
    """Yield the tests and what they come to; the child ends with whoever asks."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_mutant(mutant, tests, settings, writing)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            for line in pipe:
                yield from json.loads(line).items()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _be_mutant(mutant: Mutant, tests: Iterable[ScriptTest], settings: Mapping[str, Any], writing: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (ALL_SECONDS, ALL_SECONDS))
        signal.signal(signal.SIGPROF, _on_hang)
        faulthandler.disable()  # a mutant may end its process: an outcome like another
        device = _load_endpoint(mutant)
        judge = sys.modules["spec.mutation"].outcome  # of the tester that is loaded now, which has tests of its own
        loaded = {each.id: each for each in importlib.import_module("openmrc.conform.catalogue").shipped_tests()}
        for test in tests:
            signal.setitimer(signal.ITIMER_PROF, SECONDS * (_LONGER if test.id in LONG else 1))
            found = judge(loaded[test.id], device, settings)
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.write(writing, json.dumps({test.id: found}).encode() + b"\n")
    finally:
        os._exit(0)


def _on_hang(number: int, frame: FrameType | None) -> None:
    raise TestHangsError


def changed_tests(mutant: Mutant, tests: Sequence[ScriptTest], unbroken: dict[str, str], own: bool) -> list[str]:
    """Return the tests whose outcome differs from that of the unbroken engine: all of them, or those of its clause.

    Tests of thousands of packets run for mutants of their own clause only.
    """
    chosen = [test for test in tests if test.clause == mutant.clause or not (own or test.id in LONG)]
    found = outcomes_of(mutant, chosen)
    return [test.id for test in chosen if found.get(test.id, HANGS) != unbroken[test.id]]
