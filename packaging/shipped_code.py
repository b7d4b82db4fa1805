"""Copy what a wheel ships out of the cache of compiled code.

    python packaging/shipped_code.py FOLDER [MACHINE [WORLD ...]]

For the machine x86_64 that is the code for the processor of shipped code. For another one it is what the front end made
of each entry, from which LLVM makes code for the processor at hand at the first use. Both are of exactly the sources
that this Python imports.
"""

from __future__ import annotations

import pickle
import sys
import zlib
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba.core.caching import IndexDataCacheFile

from openmrc.core.jit import SHIPPED_CPU, code_folder
from openmrc.native.objects import TARGETS
from openmrc.programs.warm import LAST


def copy_index(index: Path, to: Path, machine: str) -> None:
    """Copy an entry's index and code, for one processor or for one kind of machine."""
    with index.open("rb") as file:
        pickle.load(file)  # Numba's version
        stamp, names = pickle.loads(file.read())
    source, shipped = (IndexDataCacheFile(str(folder), index.stem, stamp) for folder in (index.parent, to))
    to.mkdir(parents=True, exist_ok=True)
    for key in names:
        if machine == "x86_64" and SHIPPED_CPU in key[1]:
            shipped.save(key, source.load(key))
        elif machine != "x86_64" and key[1] == "portable":
            shipped.save(key, moved(source.load(key), TARGETS[machine].triple))


def moved(data: tuple[Any, ...], triple: str) -> tuple[Any, ...]:
    """Return portable code that names another machine and how that lays out its memory."""
    llvm.initialize_all_targets()
    name, compressed, *rest = data
    module = llvm.parse_bitcode(zlib.decompress(compressed))
    module.triple = triple
    module.data_layout = str(llvm.Target.from_triple(triple).create_target_machine().target_data)
    return name, zlib.compress(module.as_bitcode(), 9), *rest


def main() -> None:
    """Copy every world's code into a folder."""
    machine = (*sys.argv[2:], "x86_64")[0]
    for folder in map(code_folder, sys.argv[3:] or LAST):
        for index in folder.rglob("*.nbi"):
            copy_index(index, Path(sys.argv[1]) / index.relative_to(folder.parent).parent, machine)


if __name__ == "__main__":
    main()
