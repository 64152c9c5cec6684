"""What became of the root module's parameters since the first training forward, before which nothing was updated.

Parameters are held weakly: a program that drops its model frees it. What is kept of them is a hash and a small sample of
each, on their own device, so that an update that was lost in rounding, or a parameter that nothing trains, shows later.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .readout import Number, local_part, read_numbers
from .tensor_sums import HASH_MODULUS, bit_sums, bits_of_each, int_bits, sums_of_squares

MAX_NAMES = 50
MAX_SAMPLE = 1 << 16  # elements of all parameters
MAX_SAMPLE_EACH = 256


class ModelWatch:
    """The root module, its trainable parameters, and what they were at the first training forward."""

    def __init__(self, session: Any, torch: Any) -> None:
        """Know no module yet; see `begin`."""
        self._session = session
        self._torch = torch
        self._root: Any = None
        self._names: List[str] = []
        self._refs: List[Any] = []
        self._first_bits: List[Number] = []
        self._sample: Optional[WeightSample] = None

    def begin(self, module: Any) -> None:
        """Take the root at its first training forward, and write event initial_params."""
        self._root = weakref.ref(module)
        named = [(name, param) for name, param in module.named_parameters() if is_readable(self._torch, param)]
        with self._torch.no_grad():
            everything = self._describe([param for _, param in named])
            num_trained = sum([local_part(self._torch, param).numel() for _, param in named if param.requires_grad])
            self._session.event("initial_params", **everything, num_trained=num_trained)
            # a rank of a sharded model holds nothing of some parameters
            trained = [(name, param) for name, param in named if param.requires_grad and local_part(self._torch, param).numel()]
            self._names = [name for name, _ in trained]
            self._refs = [weakref.ref(param) for _, param in trained]
            parts = [local_part(self._torch, param) for _, param in trained]
            self._first_bits = read_numbers(self._torch, bits_of_each(self._torch, parts))
            self._sample = WeightSample(self._torch, parts)

    def moved_parts(self) -> Tuple[List[Number], int]:
        """Return how many sampled weights differ from what they were, in parts, and how many were sampled.

        Nothing ([], 0) without a root, and once a parameter is gone or has another shape. Call it under `no_grad`.
        """
        parts = self._trained_parts()
        if self._sample is None or not self._sample.fits(parts):
            self._sample = None
            return [], 0
        return self._sample.differing(parts), self._sample.num_elements

    def param_hash(self) -> Optional[str]:
        """Return the hash of the root's parameters as they are now, None without a root."""
        module = None if self._root is None else self._root()
        if module is None:
            return None
        with self._torch.no_grad():
            params = [param for param in module.parameters() if is_readable(self._torch, param)]
            return str(self._describe(params)["param_hash"])

    def record_still(self, step_idx: int) -> None:
        """Event still_params: parameters, trainable then and now, whose bits are those of the first training forward."""
        parts = self._trained_parts()
        sample = self._sample
        if sample is None or not sample.fits(parts):
            return
        with self._torch.no_grad():
            bits = read_numbers(self._torch, bits_of_each(self._torch, parts))
            # the hash of a tensor is a xor: equal changes of an even number of elements cancel out, but not in the sample
            moved = sample.is_moved(parts)
        trained = [idx for idx in range(len(parts)) if self._is_trained(idx)]
        names = [self._names[idx] for idx in trained if bits[idx] == self._first_bits[idx] and not moved[idx]]
        data = {"names": names[:MAX_NAMES], "num": len(names), "of": len(trained)}
        self._session.event_of_step("still_params", step_idx, data)

    def record_gradients(self, step: Any) -> None:
        """Event gradients: parameters of the root whose gradient was missing or zero when their optimizer stepped."""
        names = {id(param): name for name, param in zip(self._names, (ref() for ref in self._refs)) if param is not None}
        seen: Dict[str, Optional[Number]] = {}
        for fire in step.fires:
            seen.update({names[id(param)]: norm for param, norm in fire.gradients() if id(param) in names})
        norms = read_numbers(self._torch, [-1.0 if norm is None else norm for norm in seen.values()])
        missing = [name for name, norm in zip(seen, norms) if norm == -1.0]
        zero = [name for name, norm in zip(seen, norms) if norm == 0.0]
        shown = {"missing": missing[:MAX_NAMES], "zero": zero[:MAX_NAMES]}
        counts = {"num_missing": len(missing), "num_zero": len(zero), "num": len(seen)}
        self._session.event_of_step("gradients", step.step_idx, {**shown, **counts})

    def _describe(self, params: Sequence[Any]) -> Dict[str, Any]:
        """Return hash, norm and number of elements of parameters; waits for a device."""
        parts = [local_part(self._torch, param) for param in params]
        squares, bits = sums_of_squares(self._torch, parts), bit_sums(self._torch, parts)
        values = read_numbers(self._torch, [*squares, *bits])
        return {
            "param_hash": "%016x" % (sum(values[len(squares) :]) % HASH_MODULUS),
            "param_norm": math.sqrt(sum(values[: len(squares)])),
            "num_params": sum(param.numel() for param in params),
        }

    def _is_trained(self, idx: int) -> bool:
        """Tell whether a parameter that was trainable at first is so still."""
        param = self._refs[idx]()
        return param is not None and bool(param.requires_grad)

    def trained_params(self) -> List[Any]:
        """Return the root's parameters that were trainable at first and are there still; [] without a root."""
        params = [ref() for ref in self._refs]
        return [param for param in params if param is not None]

    def _trained_parts(self) -> List[Any]:
        """Return this rank's parts of the parameters that were trainable at first, None for those that are gone."""
        params = [ref() for ref in self._refs]
        return [None if param is None else local_part(self._torch, param) for param in params]


def is_readable(torch: Any, param: Any) -> bool:
    """Tell whether a parameter has values: dense or sparse, not lazy, not on the meta device."""
    return not torch.nn.parameter.is_lazy(param) and param.device.type != "meta"


class WeightSample:
    """Up to 256 elements of each tensor at a regular stride, as they were when the sample was taken."""

    def __init__(self, torch: Any, tensors: Sequence[Any]) -> None:
        """Take the sample; tensors that are not dense have none."""
        self._torch = torch
        self._num_tensors = len(tensors)
        each = min(MAX_SAMPLE_EACH, max(1, MAX_SAMPLE // max(1, len(tensors))))
        self._plans: Dict[Any, List[Tuple[int, int, int]]] = {}  # (device, dtype) -> index, elements, elements of the sample
        for idx, tensor in enumerate(tensors[:MAX_SAMPLE]):
            if tensor.layout is torch.strided and tensor.numel():
                plan = (idx, tensor.numel(), min(each, tensor.numel()))
                self._plans.setdefault((tensor.device, tensor.dtype), []).append(plan)
        self.num_elements = sum(count for plans in self._plans.values() for _, _, count in plans)
        self._first = {kind: self._read(tensors, kind) for kind in self._plans}

    def fits(self, tensors: Sequence[Any]) -> bool:
        """Tell whether these are the tensors of the sample still, by number, size, device and dtype."""
        if len(tensors) != self._num_tensors:
            return False
        for (device, dtype), plans in self._plans.items():
            for idx, numel, _ in plans:
                tensor = tensors[idx]
                if tensor is None or tensor.numel() != numel or tensor.dtype is not dtype or tensor.device != device:
                    return False
        return True

    def differing(self, tensors: Sequence[Any]) -> List[Number]:
        """Return how many elements of the sample have other bits now, in parts; they wait on their devices."""
        counts = [self._first[kind].ne(self._read(tensors, kind)).count_nonzero() for kind in self._plans]
        return [count.item() if count.is_cpu else count for count in counts]

    def is_moved(self, tensors: Sequence[Any]) -> Dict[int, bool]:
        """Return by index whether any sampled element of a tensor has other bits now; waits for a device."""
        moved = dict.fromkeys(range(self._num_tensors), False)
        for kind, plans in self._plans.items():
            pieces = self._first[kind].ne(self._read(tensors, kind)).split([self._width(kind) * count for _, _, count in plans])
            moved.update({idx: bool(piece.any()) for (idx, _, _), piece in zip(plans, pieces)})
        return moved

    def _width(self, kind: Any) -> int:
        """Return the number of integers that one element of this kind gives."""
        return 2 if kind[1].is_complex else 1

    def _read(self, tensors: Sequence[Any], kind: Any) -> Any:
        """Return the bits of the sampled elements of one device and dtype, flat."""
        pieces = [_strided(tensors[idx], numel // count, count) for idx, numel, count in self._plans[kind]]
        return int_bits(self._torch, self._torch.cat(pieces))


def _strided(tensor: Any, stride: int, count: int) -> Any:
    """Return a flat view (a copy of a tensor that is not contiguous) of `count` elements at a stride."""
    if tensor.is_contiguous():
        return tensor.as_strided((count,), (stride,))
    return tensor.reshape(-1)[: stride * count : stride]
