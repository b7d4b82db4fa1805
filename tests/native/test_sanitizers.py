"""The C of the library under the compilers' checks, with the tests of the verbs device."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from tests.native.building import PLANES, ROOT, beside, library, program
from tests.native.test_c_programs import (
    CTL_TESTS,
    EMULATED_TESTS,
    LONG,
    MEMORY_TESTS,
    RIGHTS_TESTS,
    SEMANTICS_TESTS,
    TESTS,
)

pytestmark = [pytest.mark.needs("cc", "verbs.h", "jit"), pytest.mark.exhaustive]
RANKS = ROOT / "native/tests/lock_ranks.h"
ADDRESS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# The library is kept by its options and sources: a digest among them builds it again when the header has changed.
LOCKS = ("-include", str(RANKS), f"-DRANKS={hashlib.sha256(RANKS.read_bytes()).hexdigest()[:8]}")
CHECKS = {  # options of the library, and of the program beside it
    "address and locks": ((*ADDRESS, *LOCKS), ADDRESS),
    "thread": (("-fsanitize=thread",), ("-fsanitize=thread",)),
}
MEASURED = {  # what the checks themselves take is not meant
    "opening_is_quick",
    "queue_pairs_take_little_memory",
    "an_empty_poll_takes_as_long_with_many_queue_pairs",
}
FORKS = {  # ThreadSanitizer knows no threads after a fork
    "a_forked_child_has_no_endpoint_and_the_parent_keeps_its_own",
    "a_forked_child_controls_nothing",
    "a_program_may_exit_without_closing",
}
SOURCES = {
    "device.c": TESTS,
    "ctl.c": CTL_TESTS,
    "emulated.c": EMULATED_TESTS,
    "memory.c": MEMORY_TESTS,
    "rights.c": RIGHTS_TESTS,
    "semantics.c": SEMANTICS_TESTS,
}
PAGES = {"memory_is_registered_by_large_pages"}  # ThreadSanitizer asks for the size of pages itself
RACES = {"with_an_order_the_last_byte_comes_last"}  # a MiB is read without a completion, each word a report
OWN_END = {"a_fault_that_nobody_handles_ends_the_program"}  # the checks handle it


@pytest.mark.parametrize("kind", CHECKS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_c_side_is_clean(kind: str, source: str) -> None:
    of_library, of_program = CHECKS[kind]
    made = beside(library(*of_library), source, *of_program)
    left_out = MEASURED | LONG | OWN_END | (FORKS | RACES | PAGES if kind == "thread" else set())
    names = [name for name in SOURCES[source] if name not in left_out]
    suppressions = f"suppressions={ROOT / 'native/tests/thread.supp'}"
    environment = {"MRC_PLANES": PLANES, "MRC_LOG": "off", "TSAN_OPTIONS": suppressions, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [str(made), *names], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert not re.search(r"(ERROR|WARNING): \w+Sanitizer", done.stderr), done.stderr[-6000:]


@pytest.mark.needs("valgrind")
def test_the_device_is_clean_under_valgrind() -> None:
    names = ["writes_arrive", "sends_arrive_in_order", "reads_bring_what_the_peer_has", "errors_come_on_demand"]
    command = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]
    environment = {"MRC_PLANES": PLANES, "MRC_LOG": "off", "PATH": "/usr/bin:/bin"}
    words = [*command, str(program("tests/device.c")), *names]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-6000:]


@pytest.mark.parametrize(("second", "wrong"), [("context->events", True), ("endpoint->control", False)])
def test_a_lock_out_of_order_ends_the_program(second: str, wrong: bool, tmp_path: Path) -> None:
    source = tmp_path / "locks.c"
    source.write_text(
        "struct { pthread_mutex_t posting, control; } one, *endpoint = &one;\n"
        "struct { pthread_mutex_t events; } other, *context = &other;\n"
        "int main(void) { pthread_mutex_lock(&endpoint->posting);\n"
        f"pthread_mutex_lock(&{second}); return context == NULL; }}\n"
    )
    subprocess.run(["cc", "-include", RANKS, source, "-o", tmp_path / "locks", "-pthread"], check=True)
    done = subprocess.run([tmp_path / "locks"], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == wrong
    assert ("&context->events is taken while &endpoint->posting is held" in done.stderr) == wrong
