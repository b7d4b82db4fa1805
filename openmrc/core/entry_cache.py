"""The cache of compiled entries: machine code for a processor, and the portable code that it is made from.

Numba's front end, which is Python, takes five sixths of the time of a compilation, and what it makes is the same for
every processor: code of LLVM, linked with all kernels and not optimised yet. That is kept too. Compiling for another
processor, for a wheel or for the native library begins there.

Numba has no type annotations; lines that extend or call its classes carry `type: ignore`.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from numba.core.caching import FunctionCache, UserProvidedCacheLocator

from openmrc.core.cache import PACKAGE, lock_beside, unlock
from openmrc.core.linking import EntryCode


class Locator(UserProvidedCacheLocator):  # type: ignore[misc,unused-ignore]
    """Locates compiled code by the place of its module in the package; Numba's hold the package's own path."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the folder for the entries of a module, below the cache directory."""
        path = Path(py_file)
        if path.is_relative_to(PACKAGE):
            return ".".join(path.relative_to(PACKAGE).parts[:-1])
        return str(super().get_suitable_cache_subpath(py_file))  # type: ignore[no-untyped-call,unused-ignore]


class PortableCode(NamedTuple):
    """What the front end made of an entry."""

    name: str
    bitcode: bytes  # of LLVM
    rest: tuple[Any, ...]  # what else the cache keeps of an entry; the first is Numba's description of the function

    @property
    def symbol(self) -> str:
        return str(self.rest[0].llvm_func_name)


class EntryCache(FunctionCache):  # type: ignore[misc,unused-ignore]
    """Loads compiled entries without what only a compiler needs.

    Numba registers its implementations of Python's types and of NumPy first, at every load: 0.25 s of processor time
    and 70 modules in every process. Machine code needs none of them; compiling registers them by itself.
    """

    _cache_file: Any
    _index_key: Any
    say: Callable[[str], None] = staticmethod(lambda line: None)  # as compiling is announced
    _lock: int | None = None  # descriptor of the lock, from a miss until the code is saved

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code for this signature, made of portable code if need be; None if there is neither.

        After None the caller compiles. Of several processes one does; the others wait for what it saves.
        """
        loaded = self._loaded(sig, target_context)
        if loaded is None and self._lock is None:
            self._lock = lock_beside(Path(self._cache_file._index_path), self._waits)
            loaded = self._loaded(sig, target_context)  # another process may have saved it meanwhile
            if loaded is not None:
                self._release()
        return loaded

    def _waits(self) -> None:
        self.say(f"openmrc: waiting for another process that compiles {self._py_func.__name__} ...")

    def _release(self) -> None:
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None

    def _loaded(self, sig: Any, target_context: Any) -> Any:
        loaded = self._load_overload(sig, target_context)  # type: ignore[no-untyped-call,unused-ignore]
        if loaded is not None or (portable := self.portable_code(sig)) is None:
            return loaded
        codegen = target_context.codegen()
        code = EntryCode.of_portable(codegen, portable.name, portable.bitcode)
        self._cache_file.save(self._index_key(sig, codegen), (code, *portable.rest))
        return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call,unused-ignore]

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code of an entry that was compiled just now, without its source in words: that names folders."""
        data = data._replace(type_annotation="")
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call,unused-ignore]
            (name, _, _), *rest = data._reduce()
            self._cache_file.save(self._portable_key(sig), (name, zlib.compress(data.library.portable, 1), *rest))
        finally:
            self._release()

    def portable_code(self, sig: Any) -> PortableCode | None:
        """Return the portable code for this signature; None if it is not in the cache."""
        kept = self._cache_file.load(self._portable_key(sig))
        if kept is None:
            return None
        name, compressed, *rest = kept
        return PortableCode(name, zlib.decompress(compressed), tuple(rest))

    def _portable_key(self, sig: Any) -> tuple[Any, str]:
        return sig, "portable"  # others name the processor
