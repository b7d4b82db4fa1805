"""The floors of the C library: includes lead down, and between emulation and control not at all."""

from __future__ import annotations

import re

from tests.native.building import ROOT

FLOORS = {"endpoint": 0, "objects": 1, "emulation": 2, "control": 2, "api": 3}


def test_includes_lead_down() -> None:
    for path in (ROOT / "native/src").glob("*/*.[ch]"):
        floor = path.parent.name
        for other in re.findall(r'^#include "(\w+)/', path.read_text("utf-8"), re.MULTILINE):
            assert other == floor or FLOORS[other] < FLOORS[floor], f"{path}: {other}"
