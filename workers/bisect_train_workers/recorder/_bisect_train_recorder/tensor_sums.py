"""Sums over many tensors that stay on their devices: squares, and bits.

Both only read. Results are `Number`s (readout.py): floats on cpu, pending tensors elsewhere.
"""

from __future__ import annotations

from operator import attrgetter, methodcaller, mul
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from .readout import Number

HASH_MODULUS = 2**64
_IS_CPU, _DTYPE, _ITEM = attrgetter("is_cpu"), attrgetter("dtype"), methodcaller("item")
MIN_WIDE_ELEMENTS = 1 << 14  # below, the views cost more than they save


def sums_of_squares(torch: Any, tensors: Sequence[Any]) -> List[Number]:
    """Return the sum of squares of all elements as numbers still to be added, one per kind of tensor."""
    return squares_and_norms(torch, tensors, set(map(_DTYPE, tensors)))[0]


def squares_and_norms(torch: Any, tensors: Sequence[Any], dtypes: Any) -> Tuple[List[Number], List[Number]]:
    """Return the sum of squares of all elements in parts, one per kind of tensor, and each tensor's norm.

    Each tensor's norm is taken in its own precision, at least float32; squares add up in double.

    Args:
        dtypes: the set of the tensors' dtypes.
    """
    if len(dtypes) == 1 and torch.float32 in dtypes:
        try:  # nearly always right: all dense, float32 and on one device
            square, norms = _sum_of_squares(torch, torch._foreach_norm(tensors))
            return [square], norms
        except (RuntimeError, NotImplementedError, TypeError):
            pass
    squares, norms = [], [None] * len(tensors)
    for idxs in _by_kind(tensors):
        square, found = _sum_of_squares(torch, _norms(torch, [tensors[idx] for idx in idxs]))
        squares.append(square)
        for idx, norm in zip(idxs, found):
            norms[idx] = norm
    return squares, norms


def _sum_of_squares(torch: Any, norms: List[Any]) -> Tuple[Number, List[Number]]:
    """Return the sum of the squared norms, in double where the device has it, and the norms, of a cpu as python numbers.

    Raises:
        RuntimeError: the norms lie on several devices.
    """
    if norms[0].is_cpu:  # one by one: cheaper than the first use of `stack` in a step
        if not all(map(_IS_CPU, norms)):
            raise RuntimeError("norms on several devices")
        values = list(map(_ITEM, norms))
        return sum(map(mul, values, values)), values
    stacked = torch.stack(norms)
    wide = stacked if stacked.device.type == "mps" else stacked.to(torch.float64)
    return (wide * wide).sum(), norms


def _by_kind(tensors: Sequence[Any]) -> Iterable[List[int]]:
    """Return the indices of the tensors in groups of one device, dtype and layout."""
    groups: Dict[Any, List[int]] = {}
    for idx, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype, tensor.layout), []).append(idx)
    return groups.values()


def _norms(torch: Any, group: List[Any]) -> List[Any]:
    """Return the 2-norm of each tensor of one device and dtype."""
    if group[0].is_sparse:
        group = [tensor.coalesce().values() for tensor in group]
    if group[0].dtype in (torch.float32, torch.float64):
        return list(torch._foreach_norm(group))
    if group[0].is_complex():
        return [torch.linalg.vector_norm(tensor) for tensor in group]
    return [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in group]


def bit_sums(torch: Any, tensors: Sequence[Any]) -> List[Number]:
    """Return a hash of the tensors' bits as integers still to be added (mod 2**64), one per device.

    Neither the order of the tensors nor that of elements within a tensor matters, so a
    different order of reduction on a device changes nothing. Call it under `no_grad`, with local parts.
    """
    on_host: List[Any] = []
    by_device: Dict[Any, List[Any]] = {}
    for bits in bits_of_each(torch, tensors):
        if type(bits) is int:
            on_host.append(bits)
        else:
            by_device.setdefault(bits.device, []).append(bits)
    return [sum(on_host), *[torch.stack(group).sum() for group in by_device.values()]]


def bits_of_each(torch: Any, tensors: Sequence[Any]) -> List[Number]:
    """Return a hash of each tensor's bits: an integer, or one that waits on its device."""
    hash_tensor = getattr(torch, "hash_tensor", None)
    return [
        _host_bits(torch, hash_tensor, tensor) if tensor.is_cpu else _bits(torch, hash_tensor, tensor).view(torch.int64)
        for tensor in tensors
    ]


def _host_bits(torch: Any, hash_tensor: Any, tensor: Any) -> int:
    """Return `_bits` of a cpu tensor; large ones of 4-byte elements are read 8 bytes at a time."""
    num_elements = tensor.numel()
    if num_elements < MIN_WIDE_ELEMENTS or hash_tensor is None or num_elements % 2 or tensor.element_size() != 4:
        bits: int = _bits(torch, hash_tensor, tensor).item()
        return bits
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    # The xor of all words, folded in half, is the xor of all elements: their order does not matter.
    word = int(hash_tensor(tensor.view(-1).view(torch.int64)).item())
    return (word ^ word >> 32) & 0xFFFFFFFF


def _bits(torch: Any, hash_tensor: Any, tensor: Any) -> Any:
    """Return one tensor's bits as a 64-bit integer: torch's own hash, else the sum of its elements' bits."""
    if hash_tensor is not None:
        try:
            return hash_tensor(tensor)
        except (RuntimeError, NotImplementedError, TypeError):  # a dtype or device it does not know
            pass
    return int_sum(torch, tensor)


def int_sum(torch: Any, tensor: Any) -> Any:
    """Return the sum, mod 2**64, of the elements' bits read as integers."""
    return int_bits(torch, tensor.detach().reshape(-1)).sum(dtype=torch.int64)


def int_bits(torch: Any, tensor: Any) -> Any:
    """Return the elements' bits as integers of their width; a complex element gives two, side by side."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
        tensor = tensor.reshape(-1) if tensor.dim() == 2 else tensor
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])
