"""Every wait has an end: found by reading the sources.

A wait for a lock, a condition, an event, a queue or a thread that names no time may last for ever: the one that would
end it may be gone, as daemon threads are when the interpreter finalizes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "openmrc"
WAITS = {"wait", "acquire", "join", "get"}  # of threading, queue and concurrent.futures
PROCESSES = {"process", "started"}  # what waits for a process that was killed, or is run to its end
ENDLESS = {  # what waits for work, in a thread of its own; what has a limit of its own
    ("live/host/control.py", "self._operations.get()"): "idle: a daemon thread, ended by an item",
    ("live/host/control.py", "self._over.acquire()"): "a new lock: nobody has it",
    ("live/host/control.py", "operation.wait()"): "has its own limit",
    ("operations/control/order_hook.py", "self._wake.wait()"): "idle: a daemon thread, ended by an event",
    ("operations/page/web.py", "self._stop.wait()"): "idle: serves until it is stopped",
    ("programs/endpoint/metrics.py", "server.wait()"): "idle: serves until it is stopped",
    ("train/execution/holds.py", "self._holds.get()"): "idle: a daemon thread, ended by an item",
    ("train/execution/progress.py", "self._has_work.wait()"): "idle: a daemon thread, ended by an event",
    ("train/links/mesh.py", "meeting.join()"): "has its own limit",
}
WORKS = ("train/", "programs/training/")  # `work.wait()` there is a collective, which ends by the timeout of the group


def endless_waits() -> Iterator[tuple[str, str]]:
    """Yield file and text of every call that may wait and says not how long."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
                on = ast.unparse(node.func.value).split(".")[-1].lstrip("_")
                is_work = (
                    name.startswith(WORKS)
                    and node.func.attr == "wait"
                    and on in {"work", "self", "receiving", "sending"}
                )
                if not node.args and not node.keywords and on not in PROCESSES and not is_work:
                    yield name, ast.unparse(node)


def test_every_wait_has_an_end() -> None:
    found = set(endless_waits())
    assert found - set(ENDLESS) == set()
    known = {each for each in ENDLESS if (PACKAGE / each[0]).exists()}
    assert known - found == set(), "an exception that is none any more"


def test_nothing_is_waited_for_while_a_lock_is_held() -> None:
    """A lock is taken without a limit, so its holder must not wait for others."""
    waits = []
    for path in sorted((PACKAGE / "live").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.With) and any(
                ast.unparse(each.context_expr).endswith("lock") for each in node.items
            ):
                waits += [
                    f"{path.name}: {ast.unparse(call)}"
                    for each in node.body
                    for call in ast.walk(each)
                    if isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr in WAITS - {"get"} | {"sleep", "recv", "accept", "select"}
                    and not isinstance(call.func.value, ast.Constant)
                ]
    assert waits == []
