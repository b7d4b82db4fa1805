"""`.cm` files are read as htsim's are, and nothing wrong in them goes by in silence."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import ConfigError
from openmrc.sim.scenario import matrix
from openmrc.sim.scenario.matrix import read
from openmrc.sim.scenario.matrix_line import LineReader

HEADER = "Nodes 8\nConnections 1\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "some.cm"
    path.write_bytes(text.encode())
    return path


def test_a_connection_has_source_destination_size_start_and_id(tmp_path: Path) -> None:
    found = read(written(tmp_path, "Nodes 8\nConnections 1\n3->5 id 7 start 50 size 2000\n"))
    assert (found.hosts, len(found)) == (8, 1)
    assert (found.source[0], found.destination[0], found.size[0], found.connection[0]) == (3, 5, 2000, 7)
    assert found.start[0] == 50_000_000


def test_start_counts_picoseconds_when_told(tmp_path: Path) -> None:
    found = read(written(tmp_path, HEADER + "0->1 start 50 size 1\n"), "ps")
    assert found.start[0] == 50


def test_a_start_of_a_million_microseconds_is_warned_of(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "0->1 start 1000000 size 1\n")
    assert "--cm-start-unit ps" in read(path).warnings[0]
    assert read(path, "ps").warnings == []


def test_flows_without_id_are_numbered_as_htsim_does(tmp_path: Path) -> None:
    found = read(written(tmp_path, "Nodes 8\nConnections 2\n0->1 start 0 size 1\n1->2 start 0 size 1\n"))
    assert found.connection.tolist() == [1_000_000_001, 1_000_000_002]


def test_carriage_returns_and_trailing_spaces_change_nothing(tmp_path: Path) -> None:
    plain = read(written(tmp_path, HEADER + "0->1 id 1 start 0 size 9\n"))
    other = read(written(tmp_path, (HEADER + "0->1 id 1 start 0 size 9 \n").replace("\n", "\r\n")))
    assert other.size.tolist() == plain.size.tolist() == [9]


def test_messages_share_the_id_of_their_connection(tmp_path: Path) -> None:
    text = "Nodes 8\nConnections 2\n0->1 id 4 start 0 size 9 msg 1\n0->1 id 4 start 0 size 8 msg\n"
    assert read(written(tmp_path, text)).connection.tolist() == [4, 4]


@pytest.mark.parametrize("declared", [2, 3600, 99_999_999_999])
def test_fewer_connections_than_declared_are_read_with_a_warning(tmp_path: Path, declared: int) -> None:
    """As htsim reads `a2a.cm` of its distribution."""
    found = read(written(tmp_path, f"Nodes 8\nConnections {declared}\n0->1 start 0 size 9\n"))
    assert found.size.tolist() == [9]
    assert f":2: Connections: {declared}, but the body has 1" in found.warnings[0]


def test_triggers_and_failures_are_kept_with_their_lines(tmp_path: Path) -> None:
    text = (
        "Nodes 8\nConnections 2\nTriggers 1\nFailures 1\n# a word\n\n"
        "0->1 id 1 start 0 size 9 send_done_trigger 3\n1->2 id 2 trigger 3 size 9 recv_done_trigger 3\n"
        "trigger id 3 count 2 barrier\nfailure switch_type AGG switch_id 1 link_id 0\n"
    )
    found = read(written(tmp_path, text))
    assert (found.triggers[3].kind, found.triggers[3].count, found.triggers[3].line) == ("barrier", 2, 9)
    assert (found.failures[0].tier, found.failures[0].switch, found.failures[0].line) == (1, 1, 10)
    assert found.start.tolist() == [0, -1]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("Connections 1\n0->1 start 0 size 1\n", 2, "Nodes"),
        ("Nodes 8\nConnections 2\n", 2, "0, the number"),
        ("Nodes 8\nConnections 1\n0->1 start 0 size 1\n1->2 start 0 size 1\n", 2, "2, the number"),
        (HEADER + "Triggers 1\n0->1 start 0 size 1\n", 3, "'1', expected 0"),
        (HEADER + "Nodes 9\n", 3, "once"),
        (HEADER + "Hosts 9\n", 3, "'Hosts 9'"),
        (HEADER + "0->8 start 0 size 1\n", 3, "'8', expected an integer in 0..7"),
        (HEADER + "3->3 start 0 size 1\n", 3, "two different hosts"),
        (HEADER + "0->1 start 0\n", 3, "size"),
        (HEADER + "0->1 size 1\n", 3, "neither start nor trigger"),
        (HEADER + "0->1 start 0 size 4294967296\n", 3, "4294967296"),
        (HEADER + "0->1 start 0 size 99999999999999999999\n", 3, "99999999999999999999"),
        (HEADER + "0->1 start 0 size -1\n", 3, "'-1'"),
        (HEADER + "0->1 start 0 size 1 size 2\n", 3, "once"),
        (HEADER + "0->1 start 0 size\n", 3, "missing"),
        (HEADER + "0->1 start 0 Size 1\n", 3, "'Size'"),
        (HEADER + "0->1 start soon size 1\n", 3, "'soon'"),
        (HEADER + "0->1 start 0 size 1 trigger 1\n", 3, "id on the same line"),
        (HEADER + "0->1 id 1 trigger 1 start 0 size 1\n", 3, "either start or trigger"),
        (HEADER + "0->1\tstart 0 size 1\n", 3, "tab"),
        (HEADER + "0->1  start 0 size 1\n", 3, "two spaces"),
        (HEADER + "0->1 start 0 size 1\n# late\n", 4, "comments: header only"),
        (HEADER + "0->1 start 0 size 1\ntrigger id 1\n", 4, "no kind"),
        (HEADER + "0->1 start 0 size 1\ntrigger id 1 barrier\n", 4, "barrier count"),
        (HEADER + "0->1 start 0 size 1\ntrigger id 1 oneshot\ntrigger id 1 oneshot\n", 5, "line 4 has it"),
        (HEADER + "0->1 start 0 size 1\nfailure switch_type SPINE switch_id 0 link_id 0\n", 4, "'SPINE'"),
        ("Nodes 8\nConnections 2\n0->1 id 1 start 0 size 1\n1->2 id 1 start 0 size 1\n", 4, "line 3 has it"),
        ("Nodes 8\nConnections 2\n0->1 id 1 start 0 size 1 msg\n1->2 id 1 start 0 size 1 msg\n", 4, "other messages"),
        (HEADER + "0->1 start 0 size \u00e9\n", 3, "ASCII"),
    ],
)
def test_what_is_wrong_is_refused_with_line_value_and_expectation(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert says in str(raised.value)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "none.cm")


def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "BLOCK", 1 << 10)
    monkeypatch.setattr(matrix, "LONGEST_LINE", 1 << 10)
    with pytest.raises(ConfigError, match="at most 1024 bytes"):
        read(written(tmp_path, HEADER + "0" * 5000))


@st.composite
def body_lines(draw: st.DrawFn) -> str:
    source = draw(st.integers(0, 9))
    destination = draw(st.integers(0, 9))
    size = draw(st.sampled_from([0, 1, 4096, (1 << 32) - 1, 1 << 32, 10**20]))
    start = draw(st.sampled_from(["start 0", "start 12", "start 1.5", "trigger 2", ""]))
    extra = draw(st.sampled_from(["", " prio 4", " send_done_trigger 2", " recv_done_trigger 0", " msg", " msg 3"]))
    return f"{source}->{destination} {draw(st.sampled_from(['id 5', 'id 0', '']))} {start} size {size}{extra}".replace(
        "  ", " "
    ).replace("  ", " ")


def outcome(reader: object, block: bytes) -> object:
    lines = LineReader("x.cm", 1_000_000, header={"Nodes": 8, "Connections": 1}, in_body=True)
    try:
        columns = reader(block, 3, lines)  # type: ignore[operator]
    except ConfigError as error:
        return "refused", str(error).split(":")[1]
    return {name: values.tolist() for name, values in columns.items()}, lines.warnings()


@settings(max_examples=300, deadline=None)
@given(st.lists(body_lines(), min_size=1, max_size=1), st.integers(1, 4))
def test_a_block_converted_at_once_reads_like_its_lines_one_by_one(lines: list[str], times: int) -> None:
    block = "".join(f"{line}\n" for line in lines * times).encode()
    slow = outcome(lambda text, first, reader: reader.read_block(text, first), block)
    assert outcome(matrix.by_shape, block) == slow


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 99), st.booleans()), min_size=1, max_size=20))
def test_lines_of_several_shapes_keep_their_order(rows: list[tuple[int, int, bool]]) -> None:
    block = "".join(f"{a}->7 start 0 size {size}{' prio 1' if odd else ''}\n" for a, size, odd in rows).encode()
    lines = LineReader("x.cm", 1, header={"Nodes": 8, "Connections": 1}, in_body=True)
    columns = matrix.by_shape(block, 3, lines)
    assert columns["source"].tolist() == [a for a, _, _ in rows]
    assert columns["size"].tolist() == [size for _, size, _ in rows]
    assert np.array_equal(columns["line"], np.arange(3, 3 + len(rows)))
