"""Tables that travel together: compiled code passes a NamedTuple of them as one address.

Numba passes a tuple as the words of its members: 147 for the tables of the engine, in every call and every function,
which was more than half of what was compiled. Here a tuple whose fields are all arrays (or such tuples) is the address
of the arrays' descriptors in memory. A descriptor does not change while an entry runs, which the loads say to LLVM:
it keeps them in registers like arguments.

Numba has no type annotations; lines that extend or call its classes carry `type: ignore`.
"""

import functools
import hashlib
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, lower_getattr_generic, models, register_model, typeof_impl, unbox
from numba.np.numpy_support import as_dtype

WORD = 8  # bytes
_NITEMS, _ITEMSIZE, _DATA, _SHAPE, _STRIDES = 2, 3, 4, 5, 6  # in the descriptor of an array, `ArrayModel` of Numba
_BYTE, _INT = ir.IntType(8), ir.IntType(64)
_ADDRESS = _BYTE.as_pointer()


class TableTuple(types.Type):  # type: ignore[misc,unused-ignore]
    """The type of a NamedTuple of tables."""

    def __init__(self, instance_class: type, members: tuple[Any, ...]) -> None:
        self.instance_class = instance_class
        self.fields: tuple[str, ...] = instance_class._fields  # type: ignore[attr-defined]
        self.members = members
        digest = hashlib.sha256(",".join(map(str, members)).encode()).hexdigest()[:12]
        super().__init__(f"{instance_class.__qualname__}@{digest}")  # type: ignore[no-untyped-call,unused-ignore]

    def words_before(self, index: int) -> int:
        """Return how many words of memory the members before one take."""
        return sum(_words(each) for each in self.members[:index])

    @property
    def words(self) -> int:
        """Return how many words the descriptors take."""
        return self.words_before(len(self.members))


def _words(member: Any) -> int:
    return member.words if isinstance(member, TableTuple) else _SHAPE + 2 * member.ndim


@register_model(TableTuple)
class _Model(models.PrimitiveModel):  # type: ignore[misc,unused-ignore]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _ADDRESS)  # type: ignore[no-untyped-call,unused-ignore]


_typeof_tuple: Any = typeof_impl.dispatch(tuple)  # type: ignore[attr-defined,unused-ignore]


@typeof_impl.register(tuple)
def _typeof(value: Any, context: Any) -> Any:
    if type(value).__module__.startswith("openmrc.") and all(isinstance(each, np.ndarray | tuple) for each in value):
        members = tuple(typeof_impl(each, context) for each in value)
        if all(isinstance(each, types.Array | TableTuple) for each in members):
            return TableTuple(type(value), members)
    return _typeof_tuple(value, context)


@infer_getattr
class _Attributes(AttributeTemplate):  # type: ignore[misc,unused-ignore]
    key = TableTuple

    def generic_resolve(self, kind: TableTuple, name: str) -> Any:  # type: ignore[override,unused-ignore]
        return kind.members[kind.fields.index(name)] if name in kind.fields else None


@lower_getattr_generic(TableTuple)  # type: ignore[no-untyped-call,untyped-decorator,unused-ignore]
def _member(context: Any, builder: Any, kind: TableTuple, value: Any, name: str) -> Any:
    index = kind.fields.index(name)
    member = kind.members[index]
    place = builder.gep(value, [_INT(WORD * kind.words_before(index))])
    return place if isinstance(member, TableTuple) else _load_array(context, builder, member, place)


def _load_array(context: Any, builder: Any, array: Any, place: Any) -> Any:
    """Return an array of which only what cannot be known in advance is read."""
    itemsize = as_dtype(array.dtype).itemsize
    lengths = [_load(builder, place, _SHAPE + axis, _INT) for axis in range(array.ndim)]
    made = ir.Constant(context.get_value_type(array), None)
    data = _load(builder, place, _DATA, context.get_value_type(array).elements[_DATA])
    nitems = lengths[0] if array.ndim == 1 else _load(builder, place, _NITEMS, _INT)
    for value, *position in (
        (nitems, _NITEMS),
        (_INT(itemsize), _ITEMSIZE),
        (data, _DATA),
        *((each, _SHAPE, axis) for axis, each in enumerate(lengths)),
        *((each, _STRIDES, axis) for axis, each in enumerate(_strides(builder, array, place, lengths, itemsize))),
    ):
        made = builder.insert_value(made, value, position)
    return made


def _strides(builder: Any, array: Any, place: Any, lengths: list[Any], itemsize: int) -> list[Any]:
    """Return how far apart (bytes) elements are along each axis."""
    if array.layout != "C":
        return [_load(builder, place, _SHAPE + array.ndim + axis, _INT) for axis in range(array.ndim)]
    strides = [_INT(itemsize)]
    for length in reversed(lengths[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    return strides


def _load(builder: Any, place: Any, word: int, kind: Any) -> Any:
    address = builder.bitcast(builder.gep(place, [_INT(WORD * word)]), kind.as_pointer())
    loaded = builder.load(address, align=WORD)
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded


@unbox(TableTuple)  # type: ignore[no-untyped-call,untyped-decorator,unused-ignore]
def _unbox(kind: TableTuple, value: Any, c: Any) -> Any:
    """Write the descriptors of Python's arrays into memory of the caller."""
    natives = [c.unbox(member, c.pyapi.tuple_getitem(value, index)) for index, member in enumerate(kind.members)]
    allocate, native_value = cast("Any", cgutils.alloca_once), cast("Any", NativeValue)
    memory = allocate(c.builder, ir.ArrayType(_INT, kind.words))
    place = c.builder.bitcast(memory, _ADDRESS)
    for index, (member, native) in enumerate(zip(kind.members, natives, strict=True)):
        _write(c, c.builder.gep(place, [_INT(WORD * kind.words_before(index))]), member, native.value)
    cleanups = [native.cleanup for native in reversed(natives) if native.cleanup is not None]
    is_error = functools.reduce(c.builder.or_, (native.is_error for native in natives))
    return native_value(_laundered(c.builder, place), is_error, lambda: [cleanup() for cleanup in cleanups])


def _write(c: Any, place: Any, member: Any, value: Any) -> None:
    if isinstance(member, TableTuple):
        copy_tables(c.builder, member, value, place)
    else:
        c.builder.store(value, c.builder.bitcast(place, value.type.as_pointer()))


def copy_tables(builder: Any, kind: TableTuple, source: Any, target: Any) -> None:
    """Copy the descriptors at one address to another."""
    memory = ir.ArrayType(_INT, kind.words).as_pointer()
    builder.store(builder.load(builder.bitcast(source, memory)), builder.bitcast(target, memory))


def _laundered(builder: Any, place: Any) -> Any:
    """Return the same address; LLVM forgets that the memory was written in this function, where loads cannot vary."""
    forget = ir.FunctionType(_ADDRESS, [_ADDRESS])
    return builder.asm(forget, "", "=r,0,~{memory}", [place], side_effect=True)
