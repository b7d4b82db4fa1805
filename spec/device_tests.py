"""Write docs/conform_tests.md: every conformance test of devices with its clause, level and script.

python -m spec.device_tests [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from openmrc.conform.catalogue import clauses, shipped_tests
from openmrc.conform.judging import PROPERTIES
from openmrc.conform.language import PartOfDevice, ScriptTest

PAGE = Path(__file__).parent.parent / "docs" / "conform_tests.md"
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
        "Generated from the scripts in `openmrc/conform/scripts` by `python -m spec.device_tests`; a test refuses a",
        "page that is not current. [Conformance tests of devices](conform.md) explains how to run them and how to",
        "read a script. `must` and `should` tests pass or fail; `info` tests report what the device does where public",
        "sources are silent, and what this implementation does.",
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


def main() -> int:
    """Write the page, or with --check say whether it is current."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
