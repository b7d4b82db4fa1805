"""Where the answer of a month turns, in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.report.month import bases, input_rows, order, policy_rows, turning


def deep(**changed: Any) -> dict[str, Any]:
    found = {
        "between": ["mrc", "roce_dual"], "lead_percent": 2.5, "restart_s": None, "nic_flap_mtbf_hours": None,
        "nic_flap_mtbf_hours_given": 20_000.0, "remap_s": None, "gpu_hour_price": 0.0, "lifetime_months": 48,
    }  # fmt: skip
    return {"break_even": found | changed, "question": {"policy": {"restart_s": 180.0, "remap_s": 3.0}}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "MRC leads RoCE with two ToRs by 2.50 percentage points of goodput."),
        ({"lead_percent": -1.0}, "RoCE with two ToRs leads MRC by 1.00 percentage points of goodput."),
        ({}, "Restart time: MRC leads at every value from 1 s to 2 hours."),
        ({"restart_s": 20.0}, "Restart time: RoCE with two ToRs leads below 20 s; 180 were given."),
        ({"remap_s": 600.0}, "Time until an MRC NIC stops using a dead port: RoCE with two ToRs leads above 600 s; "
                             "3 were given."),
        ({"nic_flap_mtbf_hours": 500.0}, "NIC link flaps: RoCE with two ToRs leads below 500 hours between flaps of a "
                                         "link; 20,000 were given."),
        ({"gpu_hour_price": 1.25}, "Price: MRC pays for itself from 1.25 a GPU-hour, in the parts file's unit, over 48 "
                                   "months."),
        ({"gpu_hour_price": None}, "Price: MRC does not pay for itself at any price of a GPU-hour."),
    ],
)  # fmt: skip
def test_a_sentence_names_the_network_that_leads_and_on_which_side(changed: dict[str, Any], said: str) -> None:
    assert said in turning(deep(**changed))


def test_a_policy_is_a_row_with_units() -> None:
    best = {"network": "uet", "checkpoint_s": 120.0, "spares": 0.005, "patience_s": 30.0, "evict": False,
            "most_lost": 2, "goodput_percent": 81.234}  # fmt: skip
    assert policy_rows([best]) == [("UET", "120 s", "0.5 %", "30 s", "no", "2", "81.23 %")]


def moved(name: str, given: float, low: float, high: float, unit: str, *turns: tuple[str, str]) -> dict[str, Any]:
    ends = [{"moves": {"mrc": -1.0, "roce": -2.5}, "turns": []}, {"moves": {"mrc": 0.5, "roce": 0.25}, "turns": turns}]
    return {"name": name, "basis": "ours", "given": given, "low": low, "high": high, "unit": unit, "ends": ends}


def test_an_input_is_a_row_with_its_range_and_what_both_ends_move() -> None:
    found = [moved("isolation", 600.0, 10.0, 43_200.0, "s"), moved("drain", True, 0, 1, "")]
    assert input_rows(found, ("roce",)) == [
        ("isolation", "ours", "600 s", "10 to 43,200 s", "-2.50 / +0.25"),
        ("drain", "ours", "on", "off to on", "-2.50 / +0.25"),
    ]
    assert bases([*found, {"basis": "published"}]) == "Of 3 inputs, 1 are published, 2 are ours."


def test_what_turns_the_order_of_the_networks_is_said() -> None:
    calm = {"order": ["mrc", "roce_dual"], "inputs": [moved("isolation", 600.0, 10.0, 43_200.0, "s")]}
    assert order(calm) == ["Order of goodput: MRC, RoCE with two ToRs. No input turns it."]
    turned = {**calm, "inputs": [moved("isolation", 600.0, 10.0, 43_200.0, "s", ("roce_dual", "mrc"))]}
    assert order(turned)[1:] == ["isolation, 43,200 s instead of 600 s: RoCE with two ToRs passes MRC."]
