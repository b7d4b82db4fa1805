"""The pictures of how MRC works are what the example draws."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.exhaustive
@pytest.mark.needs("jit")
def test_the_pictures_are_drawn_from_captures_of_the_scenarios(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, str(ROOT / "examples" / "how_mrc_works.py"), str(tmp_path)]
    subprocess.run(command, env=environment, check=True, timeout=300, stdout=subprocess.DEVNULL)
    kept = ROOT / "docs" / "images" / "how"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        path.name: path.read_text() for path in kept.iterdir()
    }
