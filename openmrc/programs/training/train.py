"""`mrc train`: analyse training jobs."""

import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from openmrc.programs.outcome import Json, give
from openmrc.train.execution.explain import RunReport, files_of, overview, overview_text, read, text_of
from openmrc.train.execution.explain import explain as explained
from openmrc.train.execution.recorder import CollectiveRecord, FlightRecording

_VERSION = "2.10"
_BACKEND = "gloo"  # the reader knows no others than torch's own
_CALL = re.compile(r"(\w+)(?: [A-Z_]+)? of ([\d,]+) (\w+)(?:, root (\d+))?")
_TYPES = {
    "bool": "Bool", "int8": "Char", "uint8": "Byte", "int16": "Short", "int32": "Int", "int64": "Long",
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}  # fmt: skip
_WIDE_INPUT, _WIDE_OUTPUT = {"reduce_scatter", "scatter"}, {"all_gather", "gather"}  # a part for each rank


def write(recordings: Iterable[FlightRecording], folder: Path) -> None:
    """Write a file `rank_N` for each rank into a folder, which is made, as torch's flight recorder does."""
    folder.mkdir(parents=True, exist_ok=True)
    dumps: dict[int, dict[str, Any]] = {}
    for recording in recordings:
        dump = dumps.setdefault(recording.rank, {"version": _VERSION, "entries": [], "pg_config": {}})
        ranks = str(list(range(recording.size)))
        dump["pg_config"][recording.group] = {"name": recording.group, "desc": recording.group, "ranks": ranks}
        dump["entries"] += [_entry(recording, each) for each in recording.entries]
    for rank, dump in dumps.items():
        dump["entries"].sort(key=lambda entry: entry["time_created_ns"])
        for number, entry in enumerate(dump["entries"]):
            entry["record_id"] = number
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump))


def _entry(recording: FlightRecording, entry: CollectiveRecord) -> dict[str, Any]:
    found = _CALL.match(entry.call)
    name, count = (found[1], int(found[2].replace(",", ""))) if found else ("all_reduce_barrier", 1)
    kind = _TYPES.get(found[3], "Byte") if found else "Byte"
    given, result = (count * recording.size if name in wide else count for wide in (_WIDE_INPUT, _WIDE_OUTPUT))
    is_done = entry.state == "done"
    return {
        "pg_id": 0,
        "process_group": (recording.group, recording.group),
        "collective_seq_id": entry.sequence,
        "p2p_seq_id": 0,
        "op_id": entry.sequence,
        "is_p2p": False,
        "profiling_name": f"{_BACKEND}:{name}",
        "time_created_ns": int(entry.queued_at * 1e9),
        "time_discovered_started_ns": int(entry.begun_at * 1e9),
        "time_discovered_completed_ns": int(entry.ended_at * 1e9) if is_done else None,
        "duration_ms": entry.seconds * 1e3,
        "input_sizes": [[given]],
        "input_dtypes": [kind],
        "output_sizes": [[result]],
        "output_dtypes": [kind],
        "state": "completed" if is_done else "started",
        "retired": is_done,
        "timeout_ms": 0,
        "frames": [],
    }


def explain(
    files: Annotated[list[Path], typer.Argument(exists=True, help="Recorder files, one per rank, or their folder.")],
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="Step to explain (default: the slowest steps).")
    ] = None,
    most: Annotated[
        int, typer.Option("-n", min=1, help="Maximum number of steps per rank and of collectives per step.")
    ] = 3,
    torch: Annotated[
        Path | None, typer.Option("--torch", help="Write them for torch's flight recorder into this folder instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain why steps were slow: a late rank, lost packets on a plane, or the amount of data.

    FILES are written by Group.recorder.dump and, when a group fails, to the folder named by MRC_RECORDER_DIR; with
    MRC_RECORDER=always also when it ends, and on SIGUSR1. What planes did is listed first.
    """
    recordings = [read(path) for path in files_of(files)]
    if torch is not None:
        write(recordings, torch)
        typer.echo(f"python -m torch.distributed.flight_recorder.fr_trace {torch} --prefix rank_")
        return
    report = RunReport([overview(each) for each in recordings], explained(recordings, step, most))
    lines = [line for each in report.ranks for line in overview_text(each)]
    lines += [line for each in report.steps for line in text_of(each)]
    give(report, as_json, "\n".join(map(_plain, lines)))


def _plain(line: str) -> str:
    """Return a line of a recording, which may be anybody's, without what a terminal would obey."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in line)
