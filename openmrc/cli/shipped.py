"""Files shipped with the package: the demo scenario."""

from pathlib import Path

import openmrc

DEMO = Path(openmrc.__file__).parent / "sim" / "demo.yaml"
