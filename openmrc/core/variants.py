"""Functions with variants: which one runs depends on the type of the first argument, a NamedTuple of tables.

Compiled, the choice costs nothing: an entry is compiled once for each type, with the variants of that type only.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from numba.extending import overload

from openmrc.core.jit import INLINED, kernel

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Generic(Protocol[P, R_co]):
    """A function with one variant for each type of its first argument."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def variant(self, kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def generic(function: Callable[P, R]) -> Generic[P, R]:
    """Return a function for kernels of which every type has a variant.

    `function` provides name, signature and docstring; `@function.variant(Kind)` adds a kernel.
    """
    return _dispatched(function, None)


def optional(function: Callable[P, R]) -> Generic[P, R]:
    """As `generic`; for a type without a variant, `function` itself runs."""
    return _dispatched(function, kernel(function))


def _dispatched(function: Callable[P, R], default: Callable[..., Any] | None) -> Generic[P, R]:
    variants: dict[type, Callable[..., Any]] = {}

    def variant_of(kind: type) -> Callable[..., Any]:
        found = variants.get(kind, default)
        if found is None:
            raise TypeError(f"{function.__name__}: {kind.__name__} has no variant of it")
        return found

    def call(*args: Any) -> Any:
        return variant_of(type(args[0]))(*args)

    def leading_to(chosen: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: chosen(*args)

    def variant(kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            variants[kind] = kernel(function)
            return variants[kind]

        return add

    choose = overload(call, inline="never", jit_options=INLINED)
    choose(lambda *args: leading_to(variant_of(args[0].instance_class)))
    call.__name__, call.__doc__ = function.__name__, function.__doc__  # not `wraps`: Numba would read the signature
    call.variant = variant  # type: ignore[attr-defined]
    return cast("Generic[P, R]", call)
