"""The site's page of every conformance test with its clause, level and script: a hook of MkDocs (mkdocs.yml).

MkDocs makes the page when it builds the site (`make docs`), so that no copy of the scripts has to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from openmrc.conform.catalogue import clauses, shipped_tests
from openmrc.conform.judging import PROPERTIES
from openmrc.conform.language import PartOfDevice, ScriptTest

PAGE = "conform_tests.md"
_PARTS = {
    PartOfDevice.RESPONDER: "The device is the responder: the tester writes to it",
    PartOfDevice.REQUESTER: "The device is the requester: it writes to the tester",
    PartOfDevice.BOTH: "Two devices, the tester relays between them",
}


def page() -> str:
    """Return the whole page."""
    tests = shipped_tests()
    lines = [
        "# Every conformance test",
        "",
        "Generated from the scripts in `openmrc/conform/scripts` when the site is built.",
        "[Conformance tests of devices](conform.md) explains how to run them and how to read a script.",
        "`must` and `should` tests pass or fail; `info` tests report what the device does where public sources say",
        "nothing, and what this implementation does.",
        "",
        f"{len(tests)} tests of {len({test.clause for test in tests})} clauses.",
    ]
    for part, title in _PARTS.items():
        chosen = [test for test in tests if test.part == part]
        lines += ["", f"## {title}", ""]
        for test in chosen:
            lines += _test(test)
    return "\n".join([*lines, *_properties()]) + "\n"


def _test(test: ScriptTest) -> Iterator[str]:
    clause = clauses()[test.clause]
    yield f"### {test.id}"
    yield ""
    yield f"{test.about} *{test.level.value}; {clause.section}, `{test.clause}`.*"
    yield ""
    yield "```"
    yield from test.text.splitlines()
    yield "```"
    yield ""


def _properties() -> Iterator[str]:
    yield "## Properties of packets"
    yield ""
    yield "What lines with `=` judge, and what `mrc conform --from-capture` can say about a capture alone."
    yield ""
    yield "| property | clause | what must hold |"
    yield "|---|---|---|"
    for name, each in PROPERTIES.items():
        yield f"| {name} | `{each.clause}` | {each.about} |"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page to the site."""
    files.append(File.generated(config, PAGE, content=page()))
    return files
