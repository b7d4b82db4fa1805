import math

import pytest

from openmrc.base.faults import (
    EVERYWHERE,
    WORDS,
    Impairment,
    OverlappingImpairments,
    Schedule,
    Step,
    change_text,
)
from openmrc.errors import ConfigError
from openmrc.units import PS_PER_MS, PS_PER_S


def after(base: Impairment, *steps: Step) -> Impairment:
    layers = OverlappingImpairments(base)
    for step in steps:
        layers.apply(step)
    return layers.now


def test_the_one_line_form_and_the_yaml_form_say_the_same() -> None:
    line = Schedule.parse("at: 2s, down: plane 1; at: 4s, up: plane 1")
    yaml = Schedule.parse("- {at: 2s, down: plane 1}\n- {at: 4s, up: plane 1}\n")
    assert [(step.at, step.where, dict(step.change)) for step in line.steps] == [
        (2 * PS_PER_S, "plane 1", {"down": True}),
        (4 * PS_PER_S, "plane 1", {"down": False}),
    ]
    assert [(s.at, s.where, s.change) for s in line.steps] == [(s.at, s.where, s.change) for s in yaml.steps]


def test_every_word_is_read_with_its_unit() -> None:
    step = Schedule.parse(
        "delay: 200us, jitter: 0.05ms, loss: 1%, corruption: 0.001, duplicate: 2%, reorder: 3%, "
        "trim: 4%, rate: 1.5Gb/s, bit_errors: 1e-9, data_loss: 5%, mtu: 1.5KB"
    ).steps[0]
    assert set(step.change) == set(WORDS)  # a word added is a word tested
    assert after(Impairment(), step) == Impairment(
        delay=200_000_000,
        jitter=50_000_000,
        loss=0.01,
        corruption=0.001,
        duplicate=0.02,
        reorder=0.03,
        trim=0.04,
        rate=1_500_000_000,
        bit_errors=1e-9,
        data_loss=0.05,
        mtu=1500,
    )
    assert step.where == EVERYWHERE


@pytest.mark.parametrize(
    "text",
    [
        "down",
        "up",
        "clear",
        "loss 1%",
        "delay 200us",
        "jitter 1.5us, loss 0.1%",
        "rate 100Mbps",
        "bit_errors 1e-12",
        "mtu 1500B",
    ],
)
def test_a_change_is_told_in_the_words_that_make_it(text: str) -> None:
    words = {"down": "down: all", "up": "up: all", "clear": "clear: all"}
    written = words.get(text) or ", ".join(each.replace(" ", ": ", 1) for each in text.split(", "))
    (step,) = Schedule.parse(written).steps
    assert change_text(step.change) == text


def test_a_step_that_lasts_ends_by_itself() -> None:
    first, last = Schedule.parse("at: 5s, for: 500ms, rate: 1Gbps, on: plane 0").steps
    assert last.at == first.at + 500 * PS_PER_MS
    assert after(Impairment(), first, last) == Impairment()


def test_clear_forgets_everything() -> None:
    step = Schedule.parse("clear: plane 2").steps[0]
    assert step.where == "plane 2"
    assert after(Impairment(down=True, loss=0.5, delay=7), step) == Impairment()


def test_steps_are_put_in_order_of_time() -> None:
    assert [step.at for step in Schedule.parse("at: 3s, down: all; up: all; at: 1s, loss: 1%").steps] == [
        0,
        PS_PER_S,
        3 * PS_PER_S,
    ]


def test_an_unquoted_on_of_another_yaml_reader_is_understood() -> None:
    assert Schedule.of([{"loss": "1%", True: "plane 1"}]).steps[0].where == "plane 1"


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("at: soon, down: plane 1", "'soon'"),
        ("explode: plane 1", "'explode'"),
        ("loss: 101%", "'101%'"),
        ("loss: lots", "'lots'"),
        ("rate: 7", "'7'"),
        ("delay: -1us", "'-1us'"),
        ("down: plane 1, up: plane 2", "2 places"),
        ("clear: plane 1, loss: 1%", "clear stands alone"),
        ("at: 2s", "no word"),
        ("just words", "just words"),
        ("[[1, 2]]", "['1', '2']"),
        ("{unclosed", "unclosed"),
    ],
)
def test_wrong_words_are_refused_by_name(text: str, blamed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Schedule.parse(text)
    assert blamed.strip("'") in str(caught.value)


@pytest.mark.parametrize("where", ["plane 4", "plane x", "spine 3"])
def test_an_unknown_place_is_refused_by_the_world_that_does_not_have_it(where: str) -> None:
    step = Schedule.parse(f"down: {where}").steps[0]
    with pytest.raises(ConfigError, match=where):
        step.planes(4)


def test_a_file_that_is_not_there_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match="nowhere"):
        Schedule.read(tmp_path / "nowhere.yaml")


def states(text: str) -> list[Impairment]:
    layers, found = OverlappingImpairments(), []
    for step in Schedule.parse(text).steps:
        layers.apply(step)
        found.append(layers.now)
    return found


def test_a_flap_that_ends_does_not_mend_what_another_fault_broke_for_good() -> None:
    assert [each.down for each in states("at: 1s, for: 2s, down: plane 1; at: 2s, down: plane 1")] == [True] * 3


def test_a_spell_that_ends_uncovers_the_one_that_it_overlapped() -> None:
    found = states("at: 1s, for: 9s, loss: 1%; at: 2s, for: 1s, loss: 5%, delay: 1ms")
    assert [(each.loss, each.delay) for each in found] == [
        (0.01, 0),
        (0.05, PS_PER_MS),
        (0.01, 0),
        (0.0, 0),
    ]


def test_up_ends_a_spell_for_its_own_word_only() -> None:
    found = states("at: 1s, for: 9s, down: all, rate: 1Gbps; at: 2s, up: all")
    assert [(each.down, each.rate) for each in found] == [(True, 10**9), (False, 10**9), (False, 0)]


def test_a_fault_of_a_plane_spans_the_steps_that_do_not_change_its_text() -> None:
    schedule = Schedule.parse(
        "down: all; at: 1s, loss: 1%, on: plane 0; at: 2s, for: 1s, down: plane 0; at: 4s, up: all"
    )
    spans = [list(schedule.spans(plane, 2, lambda now: "down" if now.down else "")) for plane in range(2)]
    assert spans == [[(0.0, 4.0, "down")]] * 2
    assert list(schedule.spans(0, 2, lambda now: f"{now.loss:g}" if now.loss else "")) == [(1.0, math.inf, "0.01")]
