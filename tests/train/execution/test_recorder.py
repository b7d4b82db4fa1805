import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from openmrc.errors import ConfigError
from openmrc.programs.main import app
from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution.explain import (
    RankView,
    cause_of,
    explain,
    files_of,
    overview,
    overview_text,
    read,
    text_of,
)
from openmrc.train.execution.occupation import Occupation, OccupationLog, Pause
from openmrc.train.execution.recorder import CollectiveRecord, FlightRecorder, FlightRecording, PlaneLog, write_all
from openmrc.train.group import Group
from openmrc.train.links.store import TcpStore
from tests.train.ranks import outcomes, run
from tests.waiting import await_true


def entry(**fields: Any) -> Any:
    usual = {"sequence": 1, "call": "barrier", "bytes": 0, "step": 0, "state": "done"}
    times = {"queued_at": 0.0, "begun_at": 0.0, "ended_at": 0.1}
    empty: dict[str, Any] = {"first": {}, "last": {}, "retransmitted": {}, "lost": {}, "bad_evs": []}
    return CollectiveRecord(**{**usual, **times, **empty, **fields})


def test_a_collective_leaves_an_entry_with_its_times_and_its_step(tmp_path: Any) -> None:
    def program(group: Group) -> None:
        for step in range(3):
            group.step(step)
            group.all_reduce(np.ones(200_000, np.float32))
            group.barrier()
        group.recorder.dump(tmp_path / f"{group.rank}.json")

    run(2, program)
    recording = read(tmp_path / "1.json")
    assert (recording.rank, recording.size, len(recording.planes)) == (1, 2, 2)
    assert [each.step for each in recording.entries] == [0, 0, 1, 1, 2, 2]
    first = recording.entries[0]
    assert first.call == "all_reduce SUM of 200,000 float32"
    assert 0 < first.begun_at <= first.ended_at <= time.time()
    assert 0 <= first.first[0] <= first.last[0] <= first.seconds
    assert explain([recording], step=1)[0].findings[0].sequence in (3, 4)  # of step 1


STOPPED = """
import os, signal, sys, numpy as np
from openmrc.train.group import Group
from openmrc.train.links.store import TcpStore
rank, port, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[5]
shares, stops = (each == "True" for each in sys.argv[3:5])
store = TcpStore("127.0.0.1", port, serve=False)
with Group(store, rank, 2, planes="2", timeout=60, shared_memory=shares) as group:
    array = np.ones(4_000_000, np.float32)
    for step in range(8):
        group.step(step)
        if step == 5:
            print("at 5", flush=True)
            sys.stdin.readline()
        work = group.all_reduce(array, async_op=True)
        print("in", flush=True)
        if step == 5 and rank == 1 and stops:
            os.kill(os.getpid(), signal.SIGSTOP)  # before a thread of this process waits for a completion
        work.wait()
    group.recorder.dump(file)
"""


@pytest.mark.parametrize("shares_memory", [True, False], ids=["shared", "network"])
@pytest.mark.parametrize("stops_itself", [True, False], ids=["before it waits", "while it waits"])
def test_a_rank_that_is_stopped_within_a_collective_is_named_by_both(
    tmp_path: Any, shares_memory: bool, stops_itself: bool
) -> None:
    store = TcpStore("127.0.0.1", 0, serve=True)
    files = [tmp_path / f"{rank}.json" for rank in range(2)]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                STOPPED,
                str(rank),
                str(store.port),
                str(shares_memory),
                str(stops_itself),
                str(file),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, file in enumerate(files)
    ]
    try:
        for each in processes:
            assert each.stdout is not None
            assert [each.stdout.readline() for _ in range(6)] == ["in\n"] * 5 + ["at 5\n"]
        for rank in (1, 0):  # rank 1 is stopped while it waits for rank 0
            stdin, stdout = processes[rank].stdin, processes[rank].stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write("\n")
            stdin.flush()
            assert stdout.readline() == "in\n"
            if rank == 1:
                if not stops_itself:
                    processes[1].send_signal(signal.SIGSTOP)
                assert os.WIFSTOPPED(os.waitpid(processes[1].pid, os.WUNTRACED)[1])
        time.sleep(1.0)
        processes[1].send_signal(signal.SIGCONT)
        for each in processes:
            assert each.wait(60) == 0
    finally:
        for each in processes:
            each.kill()
            each.communicate()
        store.close()
    found = [report.findings[0] for report in explain([read(file) for file in files], step=5)]
    assert [each.cause for each in found] == ["stopped rank"] * 2, found
    assert all("rank 1 did not run" in each.text for each in found)


def test_a_rank_that_comes_late_is_named_as_the_cause(tmp_path: Any) -> None:
    def program(group: Group) -> None:
        for step in range(6):
            group.step(step)
            if step == 4 and group.rank == 1:
                time.sleep(1.0)
            group.all_reduce(np.ones(50_000, np.float32))
        group.recorder.dump(tmp_path / f"{group.rank}.json")

    run(2, program)
    slowest = explain([read(tmp_path / "0.json")], most=1)[0]
    assert slowest.step == 4
    assert slowest.findings[0].cause == "late rank"
    assert "rank 1 joined" in "\n".join(text_of(slowest))


def test_lost_packets_are_named_with_their_plane() -> None:
    found = entry(retransmitted={3: 40}, lost={1: 40}, bad_evs=["plane 1 EV 0xc0de ASSUMED_BAD"], first={3: 0.001})
    named = cause_of(RankView(0, found, []))
    assert named.cause == "network"
    assert named.text == "40 packets to rank 3 retransmitted; 40 lost on plane 1; plane 1 ASSUMED_BAD: EV 0xc0de"


def test_what_a_late_rank_did_is_said_of_each() -> None:
    def late(rank: int, occupation: Occupation) -> RankView:
        return RankView(rank, entry(begun_at=0.5, before=occupation), [])

    view = RankView(0, entry(ended_at=1.0, first={1: 0.8, 2: 0.79}, last={}), [])
    others = [
        late(1, Occupation(0.8, 0.1, place="data loader, read (job.py:7)")),
        late(2, Occupation(0.8, 0.7, place="evaluate (job.py:9)")),
    ]
    named = cause_of(view, [view, *others])
    assert (named.cause, named.ranks, named.reason) == ("late rank", [1, 2], "data loader")
    assert named.text == (
        "ranks 1, 2 joined 800.0 ms after this rank; rank 1 was in data loader, read (job.py:7) for 800 ms; "
        "rank 2 was in evaluate (job.py:9) computing for 800 ms"
    )
    kinds = {
        "garbage collection": Occupation(0.8, 0.8, collecting=0.7),
        "busy processor": Occupation(0.8, 0.1, starved=0.7, place="f (job.py:1)"),
        "memory read from a disk": Occupation(0.8, 0.1, reads=3000, place="f (job.py:1)"),
        "checkpoint": Occupation(0.8, 0.7, place="checkpoint, save (job.py:3)"),
        "waiting": Occupation(0.8),
    }
    assert [cause_of(view, [view, late(1, each)]).reason for each in kinds.values()] == list(kinds)
    called_at_once = RankView(1, entry(), [])
    assert cause_of(view, [view, called_at_once]).ranks == [2]


def test_a_stop_is_told_from_lateness_whoever_waits() -> None:
    view = RankView(0, entry(ended_at=1.0, first={1: 0.9}), [])
    before = RankView(1, entry(begun_at=50.9, ended_at=51.0, before=Occupation(1.0)), [Pause(50.1, 0.8)])
    within = RankView(1, entry(begun_at=50.0, ended_at=51.0), [Pause(50.1, 0.8)])
    elsewhen = RankView(1, entry(begun_at=50.9, ended_at=51.0, before=Occupation(1.0)), [Pause(40.0, 0.8)])
    named = [cause_of(view, [view, other]).cause for other in (before, within, elsewhen)]
    assert named == ["stopped rank", "stopped rank", "late rank"]
    hosts = [RankView(rank, entry(begun_at=0.0, ended_at=1.0), [Pause(0.1, 0.8)]) for rank in (1, 2)]
    assert cause_of(view, [view, *hosts]).ranks == [1, 2]


def test_a_rank_that_no_neighbour_of_this_one_waited_for_is_named_by_a_third() -> None:
    view = RankView(0, entry(ended_at=1.0, first={3: 0.001}, last={3: 0.99}), [])
    third = RankView(3, entry(ended_at=1.0, first={2: 0.9, 0: 0.0}), [])
    named = cause_of(view, [view, third])
    assert (named.cause, named.ranks) == ("late rank", [2])


def test_one_rank_without_a_processor_is_named_but_not_all_of_them() -> None:
    def starved(*seconds: float) -> Any:
        views = [RankView(rank, entry(ended_at=1.0, starved=each), []) for rank, each in enumerate(seconds)]
        return cause_of(views[0], views)

    assert (starved(0.1, 0.8).cause, starved(0.1, 0.8).ranks) == ("busy processor", [1])
    assert starved(0.7, 0.8).cause == "transfer"
    assert starved(0.7, 0.8).text.endswith("; also ranks 1, 0 waited 800 ms for a processor")


def test_a_few_losses_among_many_packets_are_not_the_cause() -> None:
    def lossy(count: int, **fields: Any) -> Any:
        return cause_of(RankView(0, entry(bytes=64 << 20, retransmitted={1: count}, lost={2: count}, **fields), []))

    assert [lossy(count).cause for count in (20, 2000)] == ["transfer", "network"]
    assert lossy(20, bad_evs=["plane 2 EV 0xc0de SILENT"]).cause == "network"


def test_what_a_process_does_between_two_calls_is_accounted_for(tmp_path: Path) -> None:
    loader = tmp_path / "torch/utils/data/loader.py"
    names: dict[str, Any] = {}
    exec(compile("def get(wait):\n    wait()\n", str(loader), "exec"), names)  # as if the data loader called
    run(1, lambda group: group.barrier())  # from now on collections of garbage are counted
    log = OccupationLog()

    def look_from_another_thread() -> None:
        thread = threading.Thread(target=log.look, args=(time.monotonic() + 1,))
        thread.start()
        thread.join(60)

    before = time.process_time()
    while time.process_time() - before < 0.05:
        sum(range(1000))
    kept = [[number] for number in range(20_000)]
    gc.collect()
    names["get"](look_from_another_thread)
    found = log.called(time.monotonic())
    assert found is not None
    assert found.used > 0.04
    assert 0 < found.collecting < found.seconds
    assert found.place.startswith("data loader, look_from_another_thread (test_recorder.py:")
    assert len(kept) == 20_000


def test_an_error_writes_the_recorder_into_the_folder_that_is_named(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("MRC_RECORDER_DIR", str(tmp_path / "new"))
    results = outcomes(2, lambda group: group.all_reduce(np.zeros(3 + group.rank)))
    assert all(isinstance(result, CollectiveMismatchError) for result in results)
    recordings = [read(path) for path in (tmp_path / "new").iterdir()]
    assert len(recordings) == 2
    for recording in recordings:
        assert "rank 1 called" in recording.error
        assert cause_of(RankView(recording.rank, recording.entries[-1], [])).cause == "failed"


def test_the_recorder_is_written_at_the_end_and_on_a_signal_if_asked(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("MRC_RECORDER_DIR", str(tmp_path))
    run(2, lambda group: group.barrier())
    with pytest.raises(ConfigError, match="MRC_RECORDER=always"):
        files_of([tmp_path])

    def program(group: Group) -> None:
        group.barrier()
        if group.rank == 0:
            write_all()  # as SIGUSR1 does
            assert len(files_of([tmp_path])) == 2
        group.barrier()

    run(2, program)
    for path in files_of([tmp_path]):
        path.unlink()
    monkeypatch.setenv("MRC_RECORDER", "always")
    run(2, lambda group: group.barrier())
    assert [read(path).entries[0].call for path in files_of([tmp_path])] == ["barrier", "barrier"]


def test_planes_that_were_down_or_silent_come_first_with_what_they_cost() -> None:
    log = PlaneLog()
    log.watch([plane(0), plane(1)], 10.0)
    log.watch([plane(0), plane(1, silent=True, silences=1, lost=7)], 10.2)
    log.watch([plane(0, up=False), plane(1, silent=True, silences=1, lost=9)], 10.4)
    log.watch([plane(0, up=False), plane(1, silences=1, lost=9)], 11.2)
    log.watch([plane(0, up=False, silences=1), plane(1, silences=2, lost=11)], 11.4)  # silent between two calls
    entries = [entry(begun_at=9.0 + n, ended_at=9.1 + n) for n in range(4)]
    entries.append(entry(sequence=9, begun_at=10.3, ended_at=10.7))
    recording = FlightRecording("g", 2, 4, ["a", "b"], 13.0, "", entries, [3], log.events)
    assert overview_text(overview(recording)) == [
        "rank 2: shared memory with rank 3",
        "rank 2: plane 1 silent after 1.2 s, for 1.0 s: 9 packets lost; collective 9 took 400.0 ms, usually 100.0 ms",
        "rank 2: plane 0 down after 1.4 s, until the end: 0 packets lost; collective 9 took 400.0 ms, usually 100.0 ms",
        "rank 2: plane 0 silent after 2.4 s, for 0.0 s: 0 packets lost",
        "rank 2: plane 1 silent after 2.4 s, for 0.0 s: 2 packets lost",
    ]


def test_an_outage_while_no_call_waits_is_in_the_record() -> None:
    planes = [plane(0), plane(1)]
    address = SimpleNamespace(planes=("10.0.0.1", "10.0.1.1"))
    context: Any = SimpleNamespace(plane_counters=lambda: planes, address=address)
    recorder = FlightRecorder("idle", 0, 2, context)
    try:
        planes[1] = plane(1, up=False)
        await_true(lambda: len(recorder.recording().plane_events) == 1)
        planes[1] = plane(1)
        await_true(lambda: recorder.recording().plane_events[0].ended_at > 0)
    finally:
        recorder.dump_at_end()


def test_the_json_of_explain_has_what_planes_did_and_the_steps(tmp_path: Any) -> None:
    log = PlaneLog()
    for at, is_up in ((10.0, True), (10.25, False), (10.75, True)):
        log.watch([plane(0, up=is_up)], at)
    log.watch([plane(0, up=False)], 12.0)
    entries = [entry(sequence=4, begun_at=10.0, ended_at=10.5, step=1)]
    path = tmp_path / "rank2.json"
    path.write_bytes(msgspec.json.encode(FlightRecording("g", 2, 4, ["a"], 13.0, "", entries, [3], log.events)))
    printed = msgspec.json.decode(CliRunner().invoke(app, ["train", "explain", str(path), "--json"]).stdout)
    (rank,), (step,) = printed["ranks"], printed["steps"]
    outage = {"plane": 0, "state": "down", "lost": 0}
    nothing = dict.fromkeys(("sequence", "took", "usual"))
    assert rank == {
        "rank": 2,
        "error": "",
        "local_ranks": [3],
        "plane_events": [
            {**outage, "began": 0.25, "seconds": 0.5, "sequence": 4, "took": 0.5, "usual": 0.5},
            {**outage, "began": 2.0, "seconds": None, **nothing},
        ],
    }
    assert (step["step"], step["rank"], step["findings"][0]["sequence"]) == (1, 2, 4)


def plane(number: int, **fields: Any) -> Any:
    return SimpleNamespace(plane=number, **{"up": True, "silent": False, "silences": 0, "lost": 0, **fields})


def test_a_file_that_is_no_recorder_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "x.json"
    for content in (b"", b"[]", b'{"group": 5}', b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="not a flight recording"):
            read(path)


def test_an_unknown_step_is_answered_with_those_there_are() -> None:
    def program(group: Group) -> Any:
        group.step(7)
        group.barrier()
        with pytest.raises(ConfigError, match="recorded steps 7 to 7"):
            explain([group.recorder.recording()], step=8)
        return msgspec.json.encode(group.recorder.recording())

    run(2, program)


STOPPED_WHILE_IT_LOOKS = """
import signal, time
from openmrc.train.execution.occupation import WATCH

class StopsOnce:
    looks, pauses = 0, []
    def look(self, now):
        self.looks += 1
        if self.looks == 2:
            signal.raise_signal(signal.SIGSTOP)
    def note_pause(self, pause):
        self.pauses.append(pause.seconds)

watched = StopsOnce()
WATCH.add(watched)
while watched.looks < 4:
    time.sleep(0.01)
print(*watched.pauses)
"""


def test_a_stop_while_the_watching_thread_looks_is_noted() -> None:
    with subprocess.Popen([sys.executable, "-c", STOPPED_WHILE_IT_LOOKS], stdout=subprocess.PIPE, text=True) as child:
        assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
        time.sleep(1.0)
        child.send_signal(signal.SIGCONT)
        output, _ = child.communicate(timeout=60)
    (pause,) = map(float, output.split())
    assert pause > 0.5
