"""The type of a kernel to the compiler: a function that is compiled once, whatever narrow integers it is called with.

For Numba a field of 32 bits, a member of an enumeration and an integer are arguments of different types, and a kernel
that is called with each was compiled for each, with all that it calls: a third of all functions. Here every integer is
an argument of 64 bits, as every local variable is.

Numba has no type annotations; lines that extend or call its classes carry `type: ignore`.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from numba import njit, types
from numba.core.imputils import lower_constant
from numba.core.typing.templates import infer_global
from numba.extending import models, register_model

Anything = TypeVar("Anything", bound=Callable[..., Any])
_callable = set[Callable[..., Any]]()


class Kernel(types.Callable):  # type: ignore[misc,unused-ignore]
    """A Python function that compiled code may call."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function, self._options = function, options
        name = f"kernel({function.__module__}.{function.__qualname__}:{id(function):x})"
        super().__init__(name)  # type: ignore[no-untyped-call,unused-ignore]

    @functools.cached_property
    def _dispatcher(self) -> Any:
        # Python never calls it: without a wrapper, which Numba would generate and optimise for every kernel
        compiler: Any = njit
        return compiler(no_cpython_wrapper=True, **self._options)(self._function)

    def get_call_type(self, _context: Any, args: Any, kws: Any) -> Any:
        """Return the signature for arguments of these types, compiled."""
        python_signature, args = self._dispatcher.fold_argument_types(args, kws)
        args = tuple(map(widened, args))
        self._dispatcher.compile(args)
        return self._dispatcher.overloads[args].signature.replace(pysig=python_signature)

    def get_call_signatures(self) -> Any:
        """Return the signatures compiled so far, and that there may be others."""
        return self._dispatcher.nopython_signatures, True

    def get_impl_key(self, signature: Any) -> Any:
        """Return what the code of a signature is registered under."""
        return self._dispatcher.overloads[signature.args].entry_point


register_model(Kernel)(models.OpaqueModel)


@lower_constant(Kernel)  # type: ignore[no-untyped-call,untyped-decorator,unused-ignore]
def _constant(context: Any, _builder: Any, _kind: Any, _value: Any) -> Any:
    return context.get_dummy_value()


def widened(kind: Any) -> Any:
    """Return the type that a kernel receives an argument of this type as."""
    kind = types.unliteral(kind)  # type: ignore[no-untyped-call,unused-ignore]
    if isinstance(kind, types.IntEnumMember):
        kind = kind.dtype
    return types.int64 if isinstance(kind, types.Integer) and kind != types.uint64 else kind


def callable_by_compiled_code(function: Anything, options: Mapping[str, Any]) -> Anything:
    """Let compiled code call `function`, with the options of the first time; return it."""
    if function in _callable:
        return function
    _callable.add(function)
    infer_global(function, Kernel(function, options))  # type: ignore[no-untyped-call,unused-ignore]
    return function
