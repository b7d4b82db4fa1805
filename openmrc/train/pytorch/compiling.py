"""Keep `torch.compile` out of the backend: a call on a group is a message to other ranks, nothing to trace."""

from types import FunctionType
from typing import TypeVar

import torch

Class = TypeVar("Class", bound=type)


def untraced(kind: Class) -> Class:
    """Decorate a class: torch's compiler runs its methods, and what they call, as they are."""
    for name, member in list(vars(kind).items()):
        if isinstance(member, FunctionType):
            setattr(kind, name, _untraced(member))
    return kind


def _untraced(function: FunctionType) -> FunctionType:
    try:
        # As `torch.compiler.disable` does, which would import the compiler; that takes longer than torch itself.
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))
    except (ImportError, AttributeError, TypeError):
        disabled: FunctionType = torch.compiler.disable(function)
        return disabled
    return function
