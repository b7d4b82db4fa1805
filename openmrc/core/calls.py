"""Calls of entries by their machine address, so that one compiled function serves many entries.

An entry holds all that it reaches: five entries over one iteration of an engine would compile it five times. They call
it by address instead. The address lies in a row, because it changes with every process.
"""

from collections.abc import Callable
from typing import Any, ParamSpec

from numba import types
from numba.extending import intrinsic, overload

from openmrc.core.jit import INLINED, CompiledEntry

P = ParamSpec("P")
INTERPRETED = 0  # the address of entries that are not compiled
WORD = types.int64
WORDS = types.Array(types.int64, 1, "C")  # as an argument of C: seven, see `native/description.py`
MATRIX = types.Array(types.int64, 2, "C")  # nine of C


def address_of_entry(called: CompiledEntry[P, Any], arguments: tuple[Any, ...] = ()) -> int:
    """Compile an entry, or load it from the cache, and return where its machine code begins.

    `arguments` are WORD, WORDS or MATRIX each; none are given of an entry that takes 64-bit integers alone.
    """
    dispatcher: Any = called
    if not hasattr(dispatcher, "overloads"):
        return INTERPRETED
    signature = arguments or (WORD,) * called.py_func.__code__.co_argcount
    dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def by_address(called: CompiledEntry[P, int]) -> Callable[..., int]:
    """Return a kernel `call(address, *arguments)` for an entry of 64-bit integers that returns one.

    Compiled it calls what lies at `address`; called from Python it runs the interpreted entry. An exception of the
    entry is not seen: the entry must not raise.
    """
    count = called.py_func.__code__.co_argcount

    @intrinsic  # type: ignore[misc,unused-ignore]
    def jump(_context: Any, address: Any, arguments: Any) -> Any:
        kinds = (types.int64,) * count

        def emit(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            convention = context.call_conv
            kind = convention.get_function_type(types.int64, kinds)
            place = builder.inttoptr(values[0], kind.as_pointer())
            passed = [builder.extract_value(values[1], index) for index in range(count)]
            _status, result = convention.call_function(builder, place, types.int64, kinds, passed)
            return result

        signature: Any = types.int64(types.int64, types.Tuple(kinds))  # type: ignore[no-untyped-call,unused-ignore]
        return signature, emit

    def call(address: int, *arguments: int) -> int:
        return int(called.py_func(*arguments))

    overload(call, jit_options=INLINED)(_compiled(jump, count))
    return call


def _compiled(jump: Any, count: int) -> Callable[..., Any]:
    """Return the typing of a call with `count` arguments: compiled code knows no varying number of them."""
    match count:
        case 1:
            return lambda address, a: lambda address, a: jump(address, (a,))
        case 2:
            return lambda address, a, b: lambda address, a, b: jump(address, (a, b))
        case 3:
            return lambda address, a, b, c: lambda address, a, b, c: jump(address, (a, b, c))
        case 4:
            return lambda address, a, b, c, d: lambda address, a, b, c, d: jump(address, (a, b, c, d))
        case _:
            raise TypeError(f"entries called by address take 1 to 4 arguments, not {count}")
