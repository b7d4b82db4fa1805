"""A program ends, however it ends: each runs in an interpreter of its own, which must exit by itself."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap

import pytest

WITHIN = 60  # s; each takes about two on an idle machine, most of it to load the engine
_PROGRAMS = itertools.count()
PROLOGUE = """
import asyncio, contextlib, gc, os, signal, sys, threading
from openmrc.verbs import Connection, Context, Listener, connect

class Session:
    def __init__(self, ctl=None):
        self.a, self.b = Context(["{here}"]), Context(["{there}"])
        self.listener = Listener(self.b, "127.0.0.1", 0)
        self.region = self.a.alloc_pd().reg_mr(bytearray(64))
        self.memory = self.b.alloc_pd().reg_mr(bytearray(64))
        thread = threading.Thread(target=self.accept)
        thread.start()
        self.connection = connect(self.a, "127.0.0.1", self.listener.port, regions=[self.region], timeout=30)
        thread.join()

    def accept(self):
        self.end = self.listener.accept(regions=[self.memory], timeout=30)

    def write(self):
        return self.connection.write(self.region, self.connection.remote.regions[0], timeout=20)

    def close(self):
        self.connection.close()
        self.a.close()
        self.listener.close()
        self.b.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
"""
CLOSES_LATE = """
    class Late(Session):
        def __del__(self):
            self.close()
            print("closed", flush=True)
    """
PROGRAMS = {
    "an object closes when it is deleted": CLOSES_LATE + "session = Late()",
    "a cycle closes when it is collected": CLOSES_LATE + "session = Late(); session.itself = session; del session",
    "nothing is closed": "session = Session(); print('closed')",
    "a generator is left suspended": """
    def writes():
        with Session() as session:
            while True:
                yield session.write()
        print("never")
    running = writes()
    next(running)
    print("closed")
    """,
    "an exit stack is left open": """
    stack = contextlib.ExitStack()
    stack.enter_context(Session()).write()
    print("closed")
    """,
    "an event loop closes with a write under way": """
    async def main():
        session.b.impair("loss: 100%")
        task = asyncio.create_task(
            session.connection.write_async(session.region, session.connection.remote.regions[0], timeout=100))
        await asyncio.sleep(0.1)
    session = Session()
    asyncio.run(main())
    print("closed")
    """,
    "an event loop is left in an asynchronous generator": """
    async def writes():
        with Session() as session:
            while True:
                yield session.write()
    async def main():
        async for _ in running:
            break
    running = writes()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    print("closed")
    """,
    "daemon threads wait for all there is": """
    session = Session()
    for call in (session.connection.send_cq.wait, session.end.recv_cq.wait, session.a.get_async_event):
        threading.Thread(target=call, args=[1000], daemon=True).start()
    for call in (lambda: session.listener.accept(timeout=1000), lambda: session.end.hear(timeout=1000)):
        threading.Thread(target=call, daemon=True).start()
    print("closed")
    """,
    "a signal ends it while it waits": """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in its background without
    session = Session()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        session.connection.send_cq.wait(1000)
    except KeyboardInterrupt:
        print("closed")
        sys.exit(0)
    """,
    "a fixture of pytest is left open": """
    import pathlib, pytest, tempfile
    with tempfile.TemporaryDirectory() as folder:
        module = pathlib.Path(folder, "test_it.py")
        module.write_text(
            "import pytest\\nfrom __main__ import Session\\n"
            "@pytest.fixture(scope='session')\\ndef session():\\n    return Session()\\n"
            "def test_it(session):\\n    assert session.write().ok\\n")
        assert pytest.main(["-q", "-c", os.devnull, "-p", "no:cacheprovider", str(module)]) == 0
    print("closed")
    """,
    "a console is left, as a notebook's kernel is": """
    import code
    console = code.InteractiveConsole(globals())
    for cell in ("session = Session()", "assert session.write().ok", "print('closed')", "sys.exit(0)"):
        assert not console.push(cell)
    """,
    "a refusal of the user's own fails": """
    def refused(why):
        sys.exit(why)
    session = Session()
    with Listener(session.b, "127.0.0.1", 0, token="t" * 20, on_refusal=refused) as listener:
        for token in ("wrong" * 5, "t" * 20):
            thread = threading.Thread(target=lambda: [session.a.close, connect][1](
                session.a, "127.0.0.1", listener.port, pd=session.a.alloc_pd(), token=token, timeout=10), daemon=True)
            thread.start()
            thread.join(0 if token[0] == "t" else 20)
        listener.accept(pd=session.b.alloc_pd(), timeout=10).close()
    print("closed")
    """,
}
FORKS = {
    "exits at once": "os._exit(0)",
    "runs its handlers": "sys.exit(0)",
    "closes what it has inherited": "session.close(); os._exit(0)",
    "collects what it has inherited": "session = None; gc.collect(); os._exit(0)",
    "works on": "other = Context(['{other}']); other.close(); os._exit(0)",
}


def addresses() -> dict[str, str]:
    """Return addresses that no other program of these tests uses."""
    number = next(_PROGRAMS)
    return {name: f"127.{20 + os.getpid() % 70}.{number}.{last}" for last, name in enumerate(NAMES, 1)}


NAMES = ("here", "there", "other")


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; `{here}` and such in it become addresses."""
    text = PROLOGUE + textwrap.dedent(program)
    for name, address in addresses().items():
        text = text.replace(f"{{{name}}}", address)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=WITHIN, check=False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_ends_although(program: str) -> None:
    body = PROGRAMS[program]
    first, *rest = body.split("\n") if body[0] != "\n" else ("", *body.split("\n"))
    ended = run("\n".join([first, *rest]))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().endswith("closed"), ended.stderr


@pytest.mark.parametrize("child", FORKS)
def test_a_connection_outlives_a_fork_that(child: str) -> None:
    ended = run(f"""
    session = Session()
    pid = os.fork()
    if pid == 0:
        {FORKS[child]}
    assert os.waitpid(pid, 0)[1] == 0
    assert session.write().ok
    with session.listener, contextlib.suppress(Exception):  # it still serves
        thread = threading.Thread(target=session.accept)
        thread.start()
        connect(session.a, "127.0.0.1", session.listener.port, regions=[session.region], timeout=20)
        thread.join()
        print("served")
    """)
    assert (ended.returncode, ended.stdout) == (0, "served\n"), ended.stderr


def test_a_pool_of_forked_workers_ends_beside_a_connection() -> None:
    ended = run("""
    import multiprocessing
    session = Session()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, range(-8, 0)) == [8, 7, 6, 5, 4, 3, 2, 1]
        assert session.write().ok
    pool.join()
    assert session.write().ok
    print("served")
    """)
    assert (ended.returncode, ended.stdout) == (0, "served\n"), ended.stderr
