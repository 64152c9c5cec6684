"""The tensors among what a forward call was given: their names, first values, and a hash of each sample."""

from __future__ import annotations

import zlib
from typing import Any, Iterator, List, Mapping, Optional, Tuple

from .hashes import MAX_DEPTH, buffer_class
from .readout import local_part
from .tensor_sums import int_bits

MAX_ROW_ELEMENTS = 1 << 12  # of longer samples that many elements are hashed, at a regular stride
MAX_ROWS = 512


def tensor_inputs(torch: Any, args: Any, kwargs: Mapping[str, Any]) -> Iterator[Tuple[Any, Any]]:
    """Yield (key, tensor) of all tensors in call order: a position, a name, or a path such as "0.input_ids"."""
    for key, value in [*enumerate(args), *kwargs.items()]:
        if isinstance(value, torch.Tensor):
            yield key, value
        else:
            yield from _inside(torch, str(key), value, 1)


def _inside(torch: Any, path: str, value: Any, depth: int) -> Iterator[Tuple[str, Any]]:
    """Yield (path, tensor) of what lies in lists, tuples and mappings."""
    if depth >= MAX_DEPTH:
        return
    items: Any = ()
    if isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif hasattr(value, "keys"):
        items = [(key, value[key]) for key in value.keys()]  # noqa: SIM118 - no dict perhaps
    for key, item in items:
        if isinstance(item, torch.Tensor):
            yield f"{path}.{key}", item
        else:
            yield from _inside(torch, f"{path}.{key}", item, depth + 1)


def first_values(torch: Any, tensor: Any, count: int) -> Any:
    """Return a flat copy, where the tensor lies, of the first `count` values of its first row.

    A tensor of one dimension is its own row. None where there are no values to read.
    """
    tensor = local_part(torch, tensor).detach()
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.is_complex() or not tensor.numel():
        return None
    row = tensor[0] if tensor.dim() > 1 else tensor
    return row.reshape(-1)[:count].clone()


class SampleHashes:
    """A hash of each row (dimension 0) of the first tensor of each micro-batch of one step."""

    __slots__ = ("_num_rows", "_torch", "parts")

    def __init__(self, torch: Any) -> None:
        """Start with no rows."""
        self._torch = torch
        self._num_rows = 0
        self.parts: List[Any] = []  # texts, and vectors of integers that wait on a device

    def add(self, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Add the rows of one forward call."""
        for _, tensor in tensor_inputs(self._torch, args, kwargs):
            tensor = local_part(self._torch, tensor).detach()
            if tensor.dim() and tensor.layout is self._torch.strided:
                self._add_rows(tensor)
                return

    def text(self) -> Optional[str]:
        """Return 8 hex digits for each row; by now `parts` holds numbers of the host. None without rows, or with too many."""
        if not 0 < self._num_rows <= MAX_ROWS:
            return None
        return "".join([part if isinstance(part, str) else _hex_of(part) for part in self.parts])

    def _add_rows(self, tensor: Any) -> None:
        """Hash the rows of one tensor, unless they are too many."""
        num_rows = tensor.shape[0]
        self._num_rows += num_rows
        if self._num_rows > MAX_ROWS or not tensor.numel() or tensor.device.type == "meta":
            return
        rows = tensor.reshape(num_rows, -1)
        rows = rows[:, :: max(1, rows.shape[1] // MAX_ROW_ELEMENTS)].contiguous()
        self.parts.append(_row_digests(rows) if rows.is_cpu else _row_sums(self._torch, rows))


def _row_digests(rows: Any) -> str:
    """Return 8 hex digits for each row of a contiguous cpu tensor of two dimensions."""
    num_bytes = rows.shape[1] * rows.element_size()
    start, read = rows.data_ptr(), buffer_class(num_bytes).from_address
    return "".join(["%08x" % zlib.crc32(read(start + idx * num_bytes)) for idx in range(rows.shape[0])])


def _row_sums(torch: Any, rows: Any) -> Any:
    """Return a position-aware sum, mod 2**64, of the bits of each row, on the rows' device."""
    bits = int_bits(torch, rows).to(torch.int64).reshape(rows.shape[0], -1)
    weights = torch.arange(bits.shape[1], device=bits.device, dtype=torch.int64) * 2 + 1
    return (bits * weights).sum(dim=1)


def _hex_of(sums: Any) -> str:
    """Return 8 hex digits for each 64-bit sum."""
    values = sums if isinstance(sums, list) else [sums]
    return "".join(["%08x" % ((value ^ value >> 32) & 0xFFFFFFFF) for value in values])
