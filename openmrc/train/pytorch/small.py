"""The short way of small collectives: plans by shape, and no array over a tensor's memory."""

from typing import Any

import torch

from openmrc.collectives.choice import Collective
from openmrc.errors import MrcError
from openmrc.train.execution.small import SmallPlan, parts_of
from openmrc.train.execution.work import Work
from openmrc.train.group import Group
from openmrc.train.links.frames import REDUCING
from openmrc.train.pytorch.tensors import element_of, is_premultiplied, op_of, reduced
from openmrc.train.reduction import Op

_MAX_PLANS = 1024  # kept; then all are made anew
_TYPES = frozenset({torch.Tensor, torch.nn.Parameter})  # other subclasses may have no memory of their own


class SmallCalls:
    """The small collectives of one group on dense, contiguous tensors of the host."""

    def __init__(self, group: Group) -> None:
        """Start without plans."""
        self._group = group
        self._plans: dict[tuple[Any, ...], SmallPlan | None] = {}

    def begin(
        self, kind: Collective, given: Any, out: Any, *, op: Any = None, root: int = 0, is_async: bool = True
    ) -> Work | None:
        """Start a collective from `given` to `out`; None, and nothing was done, if it has to go the general way.

        `op` is torch's operation of a reduction.
        """
        if not (_is_plain(given) and _is_plain(out)):
            return None
        key = kind, given.dtype, out.dtype, given.numel(), out.numel(), getattr(op, "op", op), root
        try:
            plan = self._plans[key]
        except KeyError:
            plan = self._add_plan(key, given, out)
        if plan is None:
            return None
        return self._group.run_small(plan, given.data_ptr(), out.data_ptr(), (given, out), is_async)

    def _add_plan(self, key: tuple[Any, ...], given: Any, out: Any) -> SmallPlan | None:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        kind, *_, op, root = key
        try:
            plan = self._plan(kind, given, out, op, root)
        except MrcError:  # an invalid call, which the general way reports
            plan = None
        self._plans[key] = plan
        return plan

    def _plan(self, kind: Collective, given: Any, out: Any, torch_op: Any, root: int) -> SmallPlan | None:
        given_parts, out_parts = parts_of(kind, self._group.size)
        count, rest = divmod(given.numel(), given_parts)
        if rest or out.numel() != count * out_parts or given.dtype != out.dtype:
            return None
        op = Op.SUM
        if kind in REDUCING:
            if is_premultiplied(torch_op):
                return None
            reduced(given)
            op = op_of(torch_op, given)
        dtype, each = element_of(given)
        return self._group.small_plan(kind, dtype, count * each, op, root)


def _is_plain(tensor: Any) -> bool:
    """Whether an argument is a tensor that is its memory, element by element."""
    return bool(
        type(tensor) in _TYPES
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not (tensor.is_conj() or tensor.is_neg())
    )
