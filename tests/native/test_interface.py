"""`mrc.h` and `mrc_ctl.h` against the published interface: layouts, values and types, as a compiler sees them."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.native.building import ROOT, program, run

TABLE = tomllib.loads(Path(__file__).with_name("mrc_interface.toml").read_text("utf-8"))
pytestmark = pytest.mark.needs("cc", "verbs.h", "x86-64")


def assertions() -> list[str]:
    """A static assertion for every fact."""
    lines = []
    for name, facts in TABLE["structs"].items():
        lines.append(f"sizeof(struct {name}) == {facts['size']}")
        for member, offset, size in facts["members"]:
            lines.append(f"offsetof(struct {name}, {member}) == {offset}")
            lines.append(f"sizeof(((struct {name} *)0)->{member}) == {size}")
    lines += [f"(int64_t)({name}) == {value}" for name, value in TABLE["values"].items()]
    lines += [f"__builtin_types_compatible_p(__typeof__({name}), {kind})" for name, kind in TABLE["functions"].items()]
    return [f'_Static_assert({line}, "{line}");' for line in lines]


def test_layouts_values_and_types(tmp_path: Path) -> None:
    source = tmp_path / "interface.c"
    lines = ["#include <stddef.h>", "#include <mrc.h>", "#include <mrc_ctl.h>", *assertions()]
    source.write_text("\n".join(lines) + "\n")
    command = ["cc", "-std=gnu11", "-fsyntax-only", f"-I{ROOT / 'native/include'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("jit")
def test_what_is_left_out_on_the_way_to_rts_is_chosen() -> None:
    """The calls of the published examples."""
    done = run(str(program("tests/defaults.c")))
    assert done.returncode == 0, done.stderr
