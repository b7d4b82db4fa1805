"""What comes with the package and needs no repository: the default scenario."""

from pathlib import Path

import openmrc

DEMO = Path(openmrc.__file__).parent / "sim" / "demo.yaml"
