"""Copy what a wheel ships out of the cache of compiled code: `python packaging/shipped_code.py FOLDER`.

That is the machine code for the processor of shipped code, of exactly the sources that this Python imports. The cache
has it for other processors too, and portable code.
"""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path

from numba.core.caching import IndexDataCacheFile

from openmrc.core.jit import SHIPPED_CPU, code_folder
from openmrc.programs.warm import LAST


def copy_index(index: Path, to: Path) -> None:
    """Copy an entry's index and code, for one processor."""
    with index.open("rb") as file:
        pickle.load(file)  # Numba's version
        stamp, names = pickle.loads(file.read())
    chosen = {key: name for key, name in names.items() if SHIPPED_CPU in key[1]}
    to.mkdir(parents=True, exist_ok=True)
    for name in chosen.values():
        shutil.copy(index.parent / name, to)
    IndexDataCacheFile(str(to), index.stem, stamp)._save_index(chosen)


def main() -> None:
    """Copy every world's code into a folder."""
    for folder in map(code_folder, LAST):
        for index in folder.rglob("*.nbi"):
            copy_index(index, Path(sys.argv[1]) / index.relative_to(folder.parent).parent)


if __name__ == "__main__":
    main()
