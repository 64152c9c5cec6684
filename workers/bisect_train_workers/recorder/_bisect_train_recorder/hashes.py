"""Hashes of what went in (batches) and of the state of the generators. Both only read."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from typing import Any, Dict, List, Mapping, Optional

from .readout import Number, local_part
from .tensor_sums import int_bits, int_sum

MAX_FULL_BYTES = 1 << 18  # 0.25 MiB hash in about 0.3 ms
NUM_SAMPLES = 1 << 12
MAX_DEPTH = 6
MAX_KINDS = 1024
NUM_MT19937_BYTES = 625 * 4


@functools.lru_cache(maxsize=MAX_KINDS)
def buffer_class(num_bytes: int) -> Any:
    """Return the ctypes class of so many bytes: kept, since ctypes builds it anew after each garbage collection."""
    return ctypes.c_char * num_bytes


def _update_with_memory(digest: Any, tensor: Any) -> None:
    """Feed a contiguous cpu tensor's bytes to the digest, without numpy and without a copy."""
    num_bytes = tensor.numel() * tensor.element_size()
    if num_bytes:
        digest.update(buffer_class(num_bytes).from_address(tensor.data_ptr()))


class _Kind:
    """What tensors of one shape and dtype have in common; batches repeat few of them."""

    __slots__ = ("buffer", "text")

    def __init__(self, tensor: Any) -> None:
        """Take the name from a tensor, and the ctypes buffer if it is small enough to hash in full."""
        self.text = f"{tuple(tensor.shape)}{tensor.dtype}".encode()
        num_bytes = tensor.numel() * tensor.element_size()
        self.buffer: Any = buffer_class(num_bytes) if 0 < num_bytes <= MAX_FULL_BYTES else None


_kinds: Dict[Any, _Kind] = {}


def _keep_kind(tensor: Any) -> _Kind:
    """Keep the kind of a tensor and return it; all are dropped before they become many."""
    if len(_kinds) >= MAX_KINDS:
        _kinds.clear()
    kind = _kinds[(tensor.shape, tensor.dtype)] = _Kind(tensor)
    return kind


class BatchHasher:
    """Hash of everything that the root module was given in one step, all micro-batches in order.

    Tensors of the cpu are hashed at once; of those on a device a sum stays there until the
    step's one copy to the host.
    """

    __slots__ = ("_digest", "_torch", "is_empty", "pending")

    def __init__(self, torch: Any) -> None:
        """Start empty."""
        self._torch = torch
        self._digest = hashlib.blake2b(digest_size=8)
        self.pending: List[Number] = []
        self.is_empty = True

    def add(self, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Add the arguments of one forward call."""
        self.is_empty = False
        for value in args:
            self._add(value, 1)
        if kwargs:
            self._add(kwargs, 0)

    def hexdigest(self) -> str:
        """Return the hash; by now `pending` holds numbers of the host."""
        if not self.pending:
            return str(self._digest.hexdigest())
        digest = self._digest.copy()
        digest.update(repr(self.pending).encode())
        return str(digest.hexdigest())

    def _add(self, value: Any, depth: int) -> None:
        """Add one value; containers are walked, objects of other kinds count by type only."""
        if isinstance(value, self._torch.Tensor):
            self._add_tensor(value)
        elif depth < MAX_DEPTH and isinstance(value, (list, tuple)):
            for item in value:
                self._add(item, depth + 1)
        elif depth < MAX_DEPTH and hasattr(value, "keys"):
            for key in sorted(value.keys(), key=str):
                self._digest.update(str(key).encode())
                self._add(value[key], depth + 1)
        elif value is None or isinstance(value, (bool, int, float, str, bytes)):
            self._digest.update(repr(value).encode())
        else:
            self._digest.update(type(value).__qualname__.encode())

    def _add_tensor(self, tensor: Any) -> None:
        """Add shape, dtype and content; of large ones a strided sample and, on devices, a sum."""
        if type(tensor) is not self._torch.Tensor:
            tensor = local_part(self._torch, tensor)
        kind = _kinds.get((tensor.shape, tensor.dtype)) or _keep_kind(tensor)
        self._digest.update(kind.text)
        if tensor.is_cpu and kind.buffer is not None and tensor.layout is self._torch.strided:
            if not tensor.is_contiguous():
                tensor = tensor.contiguous()
            self._digest.update(kind.buffer.from_address(tensor.data_ptr()))
            return
        num_elements, device_type = tensor.numel(), tensor.device.type
        if not num_elements or device_type == "meta" or tensor.layout is not self._torch.strided:
            return
        if device_type != "cpu":
            self.pending.append(weighted_sample_sum(self._torch, tensor))
            self.pending.append(int_sum(self._torch, tensor))
            return
        self._digest.update(str(int_sum(self._torch, tensor).item()).encode())
        _update_with_memory(self._digest, sample(tensor).contiguous())


def sample(tensor: Any) -> Any:
    """Return about NUM_SAMPLES elements at a regular stride, flat."""
    flat = tensor.reshape(-1)
    return flat[:: max(1, flat.numel() // NUM_SAMPLES)]


def weighted_sample_sum(torch: Any, tensor: Any) -> Any:
    """Return a position-aware sum, mod 2**64, of a sample of the bits, on the tensor's device."""
    bits = int_bits(torch, sample(tensor)).to(torch.int64)
    weights = torch.arange(bits.numel(), device=bits.device, dtype=torch.int64) * 2 + 1
    return (bits * weights).sum()


class _NumpyState:
    """Bytes of the state of numpy's global generator: kept, and asked for anew once its memory has changed."""

    def __init__(self) -> None:
        """Start with no state."""
        self._memory: Optional[bytes] = None
        self._state = b""

    def of(self, get_state: Any) -> bytes:
        """Return what `numpy.random.get_state` returns, which takes long: element by element."""
        memory = _numpy_memory(getattr(get_state, "__self__", None))
        if memory is None or memory != self._memory:
            name, keys, *rest = get_state()
            self._memory, self._state = memory, f"{name}{rest}".encode() + keys.tobytes()
        return self._state


_numpy_state = _NumpyState()


def _numpy_memory(generator: Any) -> Optional[bytes]:
    """Return the bytes that a state lies in, those of the object (a kept gauss) too; None for unknown generators."""
    bits = getattr(generator, "_bit_generator", None)
    if type(bits).__name__ != "MT19937" or not hasattr(bits, "ctypes"):
        return None
    start = object.__basicsize__  # the head counts references
    own = ctypes.string_at(id(generator) + start, type(generator).__basicsize__ - start)
    return own + ctypes.string_at(bits.ctypes.state_address, NUM_MT19937_BYTES)


def rng_hash(torch: Any) -> str:
    """Return a hash of the states of python's, numpy's and torch's cpu generators.

    Libraries that the program has not imported do not count.
    """
    digest = hashlib.blake2b(digest_size=8)
    random = sys.modules.get("random")
    if random is not None:
        _, words, gauss = random.getstate()
        digest.update(f"{hash(words)} {gauss}".encode())  # of integers: the same in every process
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        digest.update(_numpy_state.of(numpy_random.get_state))
    _update_with_memory(digest, torch.get_rng_state())
    return digest.hexdigest()
