"""Sum of sparse tensors: gather the indices and values of all ranks at every rank, and add them in rank order."""

from typing import Any

import numpy as np
import torch

from openmrc.train.errors import UnsupportedError
from openmrc.train.group import Group
from openmrc.train.pytorch.tensors import moved
from openmrc.train.reduction import Op


def all_reduce(group: Group, tensor: Any, op: Op) -> None:
    """Sum or average a sparse COO tensor of all ranks in place, and wait; UnsupportedError for other operations."""
    if op not in (Op.SUM, Op.AVG):
        raise UnsupportedError(f"op: {op.name}; sparse tensors support only SUM and AVG")
    if op == Op.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise UnsupportedError(f"op: AVG of sparse tensors is for floating-point numbers, not {tensor.dtype}")
    own = tensor.detach().coalesce()
    counts = np.zeros(group.size, np.int64)
    group.all_gather(counts, np.array([own.indices().shape[1]], np.int64))
    most = int(counts.max())
    indices = _gathered(group, own.indices().t().contiguous(), most, counts)
    values = _gathered(group, own.values(), most, counts)
    if op == Op.AVG:
        values /= group.size
    total = torch.sparse_coo_tensor(indices.t(), values, own.shape, check_invariants=True).coalesce()
    with torch.no_grad():
        tensor.copy_(total)


def _gathered(group: Group, rows: Any, most: int, counts: Any) -> Any:
    """Return the rows of all ranks; rank r has `counts[r]` rows, the maximum is `most`."""
    padded = rows.new_zeros((most, *rows.shape[1:]))
    padded[: len(rows)] = rows
    everything = rows.new_zeros((group.size * most, *rows.shape[1:]))
    given = moved(padded)
    group.all_gather(moved(everything).array, given.array, dtype=given.dtype)
    return torch.cat([everything[rank * most :][:count] for rank, count in enumerate(counts.tolist())])
