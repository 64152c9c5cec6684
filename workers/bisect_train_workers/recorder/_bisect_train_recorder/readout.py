"""Brings numbers from devices to the host: one small copy per device and step."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Sequence, Union

Number = Union[int, float, Any]  # a python number, or a tensor of one element

_READ_ONE_BY_ONE = ("cpu", "mps")  # cpu: no copy needed; mps: has no float64


def local_part(torch: Any, tensor: Any) -> Any:
    """Return this rank's own part of a tensor, which is the tensor itself unless it is a DTensor.

    Reading a DTensor as a whole would start a collective.
    """
    return tensor if type(tensor) is torch.Tensor else getattr(tensor, "_local_tensor", tensor)


def snapshot(torch: Any, tensor: Any) -> Number:
    """Return the value of a one-element tensor as of now, without waiting for a device.

    Programs change such tensors in place later (all-reduced losses), so the value is copied.
    """
    if type(tensor) is torch.Tensor and tensor.is_cpu:
        return tensor.item()
    if tensor is None or isinstance(tensor, (float, int)):
        return tensor
    tensor = local_part(torch, tensor)
    if not isinstance(tensor, torch.Tensor):
        return tensor
    return tensor.item() if tensor.is_cpu else tensor.detach().clone().reshape(())


def read_numbers(torch: Any, numbers: Sequence[Number]) -> List[Union[int, float]]:
    """Return all numbers on the host, in order; integers stay exact, floats become double.

    Device values travel as int64 bit patterns, so one copy serves both kinds. A tensor of several elements gives a list.
    """
    results: List[Any] = list(numbers)
    by_device: Dict[Any, List[int]] = {}
    for idx, number in enumerate(numbers):
        if isinstance(number, torch.Tensor):
            if number.device.type in _READ_ONE_BY_ONE:
                results[idx] = number.item() if number.numel() == 1 else number.reshape(-1).tolist()
            else:
                by_device.setdefault(number.device, []).append(idx)
    for idxs in by_device.values():
        tensors = [numbers[idx].reshape(-1) for idx in idxs]
        values = iter(torch.cat([_as_bits(torch, tensor) for tensor in tensors]).tolist())
        for idx, tensor in zip(idxs, tensors):
            found = [_of_bits(next(values), tensor.is_floating_point()) for _ in range(tensor.numel())]
            results[idx] = found[0] if len(found) == 1 else found
    return results


def _of_bits(bits: int, is_float: bool) -> Union[int, float]:
    """Return the number that `_as_bits` made."""
    number: Union[int, float] = struct.unpack("<d", struct.pack("<q", bits))[0] if is_float else bits
    return number


def _as_bits(torch: Any, tensor: Any) -> Any:
    """Return numbers as int64; floats as the bits of their doubles."""
    if tensor.is_floating_point():
        return tensor.to(torch.float64).view(torch.int64)
    return tensor.to(torch.int64)
