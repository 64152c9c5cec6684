"""Sums over many tensors that stay on their devices: squares, and bits.

Both only read. Results are `Number`s (readout.py): floats on cpu, pending tensors elsewhere.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Sequence

from .readout import Number, local_part

HASH_MODULUS = 2**64


def sums_of_squares(torch: Any, tensors: Sequence[Any], dtypes: Any = None) -> List[Number]:
    """Return the sum of squares of all elements as numbers still to be added, one per kind of tensor.

    Each tensor's norm is taken in its own precision, at least float32; squares add up in double.

    Args:
        dtypes: the set of the tensors' dtypes where the caller knows it.
    """
    if dtypes is not None and len(dtypes) == 1 and torch.float32 in dtypes:
        try:  # nearly always right: all dense, float32 and on one device
            return [_sum_of_squares(torch, torch.stack(torch._foreach_norm(tensors)))]
        except (RuntimeError, NotImplementedError, TypeError):
            pass
    return [_sum_of_squares(torch, torch.stack(_norms(torch, group))) for group in _by_kind(tensors)]


def _sum_of_squares(torch: Any, norms: Any) -> Number:
    """Return the sum of the squared norms, in double where the device has it."""
    device_type = norms.device.type
    if device_type == "cpu":
        return sum([norm * norm for norm in norms.tolist()])
    wide = norms if device_type == "mps" else norms.to(torch.float64)
    return (wide * wide).sum()


def _by_kind(tensors: Sequence[Any]) -> Iterable[List[Any]]:
    """Return the tensors in groups of one device, dtype and layout."""
    groups: Dict[Any, List[Any]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.device, tensor.dtype, tensor.layout), []).append(tensor)
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
    different order of reduction on a device changes nothing.
    """
    by_device: Dict[Any, List[Any]] = {}
    for tensor in tensors:
        by_device.setdefault(tensor.device, []).append(_bits(torch, tensor))
    return [torch.stack(bits).sum() for bits in by_device.values()]


def _bits(torch: Any, tensor: Any) -> Any:
    """Return one tensor's bits as an int64: torch's own hash, else the sum of its elements' bits."""
    tensor = local_part(torch, tensor)
    if hasattr(torch, "hash_tensor"):
        try:
            return torch.hash_tensor(tensor.detach()).view(torch.int64)
        except (RuntimeError, NotImplementedError, TypeError):  # a dtype or device it does not know
            pass
    return int_sum(torch, tensor)


def int_sum(torch: Any, tensor: Any) -> Any:
    """Return the sum, mod 2**64, of the elements' bits read as integers."""
    tensor = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    flat = tensor.contiguous().reshape(-1)
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return flat.view(kinds[flat.element_size()]).sum(dtype=torch.int64)
