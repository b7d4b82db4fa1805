"""Object code that is called in the loop: no function leaves the upper halves of wide registers in use.

Intel's processors slow down every SSE instruction until `vzeroupper` (Intel's optimisation manual, "Mixing AVX and SSE
code"), so each return, call or jump out of a function that used them needs one before it, on every path.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.native.building import library

pytestmark = pytest.mark.needs("objdump", "x86-64")

_HEAD = re.compile(r"^([0-9a-f]+) <(.+)>:$")
_LINE = re.compile(r"^ +([0-9a-f]+):\t(?:(?:bnd|notrack|rep|repz|data16|cs|lock) )*(\S+) *(.*)$")
_WIDE = re.compile(r"%[yz]mm\d")
_TARGET = re.compile(r"^([0-9a-f]+)(?: |$)")
_PROGRAM = """
import sys
from pathlib import Path
from openmrc.core.memory import stream_line
from openmrc.core.calls import WORD
from openmrc.core.object_code import compile_object

def stream_lines(target: int, source: int, count: int) -> int:
    share = 0.5
    for line in range(count):
        stream_line(target + 64 * line, source + 64 * line)
        share = share * 0.75 + line
    return int(share)

Path(sys.argv[1]).write_bytes(
    compile_object(stream_lines, "stream_lines", (WORD,) * 3, "x86_64-unknown-linux-gnu", "sapphirerapids")
)
"""


class Instruction(NamedTuple):
    name: str
    operands: str


def functions(binary: Path | str) -> Iterator[tuple[str, dict[int, Instruction]]]:
    """Every function of a file, its instructions by address."""
    command = ["objdump", "--disassemble", "--no-show-raw-insn", str(binary)]
    name, found = "", dict[int, Instruction]()
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if head := _HEAD.match(line):
            yield name, found
            name, found = head[2], {}
        elif each := _LINE.match(line):
            found[int(each[1], 16)] = Instruction(each[2], each[3].split("#")[0].strip())
    yield name, found


def uses_wide_registers(code: dict[int, Instruction]) -> bool:
    return any(_WIDE.search(each.operands) for each in code.values())


def leaves_dirty(code: dict[int, Instruction]) -> list[str]:
    """Where a function is left with wide registers in use, over all paths through it."""
    order = sorted(code)
    following = dict(zip(order, [*order[1:], None], strict=True))
    todo = [(order[0], False)] if order else []
    seen = set(todo)
    wrong = []
    while todo:
        at, dirty = todo.pop()
        each = code[at]
        dirty = not each.name.startswith("vzero") and (dirty or _WIDE.search(each.operands) is not None)
        target = _TARGET.match(each.operands)
        inside = int(target[1], 16) if target and int(target[1], 16) in code else None
        is_jump = each.name.startswith("j")
        is_left = each.name.startswith(("ret", "call")) or (is_jump and inside is None)
        if dirty and is_left:
            wrong.append(f"{at:x}: {each.name} {each.operands}")
        after = [inside] if is_jump else []
        if not each.name.startswith(("ret", "jmp", "ud2", "hlt")):
            after.append(following[at])
        for next_at in after:
            if next_at is not None and (next_at, dirty) not in seen:
                seen.add((next_at, dirty))
                todo.append((next_at, dirty))
    return wrong


@pytest.mark.needs("cc", "verbs.h", "jit")
def test_the_library() -> None:
    wide = {name: code for name, code in functions(library()) if uses_wide_registers(code)}
    assert wide
    assert [(name, wrong) for name, code in wide.items() if (wrong := leaves_dirty(code))] == []


@pytest.mark.needs("jit")
def test_kernels_have_no_instruction_that_is_slow_after_isal(tmp_path: Path) -> None:
    """The CRC of isal returns with wide registers in use; kernels for such a processor have no legacy instruction."""
    environment = {**os.environ, "NUMBA_CPU_NAME": "sapphirerapids", "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path / "made.o")], check=True, env=environment)
    ((_, code),) = [each for each in functions(tmp_path / "made.o") if each[0] == "stream_lines"]
    assert uses_wide_registers(code)
    assert not leaves_dirty(code)
    assert [each for each in code.values() if "%xmm" in each.operands and not each.name.startswith("v")] == []


@pytest.mark.needs("cc")
@pytest.mark.parametrize(
    ("ends", "is_clean"),
    [
        ("vzeroupper; ret", True),
        ("ret", False),
        ("jmp other", False),
        ("call other; vzeroupper; ret", False),
        ("test %eax, %eax; je 1f; vzeroupper; 1: ret", False),
        ("test %eax, %eax; je 1f; vzeroupper; ret; 1: vzeroupper; jmp other", True),
    ],
)
def test_the_check_itself(tmp_path: Path, ends: str, *, is_clean: bool) -> None:
    source = tmp_path / "made.s"
    source.write_text(f".globl other\nmade: vpxor %ymm0, %ymm0, %ymm0; {ends}\n")
    subprocess.run(["cc", "-c", str(source), "-o", str(tmp_path / "made.o")], check=True)
    ((_, code),) = [each for each in functions(tmp_path / "made.o") if each[0] == "made"]
    assert (leaves_dirty(code) == []) == is_clean
