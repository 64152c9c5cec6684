"""Lets a program that names CUDA and NCCL run on the CPU with gloo. Asked for by name only, since it changes what is tested.

Devices that are CUDA's are replaced where torch is given one: tensors, modules, generators, checkpoints, autocast, meshes.
`torch.cuda.is_available()` stays what it is, so that a program that asks chooses the CPU itself; what asks nothing of a device
(streams, events, memory counters) does nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import time
import types
from typing import Any, Callable, Optional

from .seed_shift_numpy import stand_in_metaclass, stand_in_namespace

NAME = "cuda-as-cpu"
CPU = "cpu"

_FACTORIES = (
    *("arange", "as_tensor", "asarray", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "linspace"),
    *("logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm"),
    *("scalar_tensor", "sparse_coo_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like"),
    *("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window", "from_file", "frombuffer"),
)
_TENSOR_METHODS = ("to", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "new_empty_strided")
_ZERO_COUNTERS = (
    *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "current_device"),
    *("memory_cached", "max_memory_cached", "utilization", "temperature", "power_draw"),
)
_NO_OPS = (
    *("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated"),
    *("reset_accumulated_memory_stats", "set_per_process_memory_fraction", "init", "set_stream"),
)


def install(hook: Any) -> None:
    """Patch each module of torch right after it is imported."""
    hook.after("torch", _patch_torch)
    hook.after("torch.distributed.device_mesh", _patch_mesh)


def to_cpu(device: Any) -> Any:
    """Return the CPU for a device of CUDA, however it is named; anything else as it is."""
    if isinstance(device, str):
        return CPU if device == "cuda" or device.startswith("cuda:") else device
    if type(device).__name__ == "device" and getattr(device, "type", None) == "cuda":
        return type(device)(CPU)
    return device


def _patch_torch(session: Any, torch: Any) -> None:
    """Patch everything that `import torch` brings, and say so in the record."""
    session.event("shim", what=NAME)
    for part in (_patch_factories, _patch_tensors, _patch_modules, _patch_contexts, _patch_cuda, _patch_distributed):
        session.guarded(part)(torch)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace one attribute by what is made of it, where it is there."""
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, make(original))


def _with_device(function: Any) -> Any:
    """Return a function whose argument `device=` is mapped."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = to_cpu(kwargs["device"])
        return function(*args, **kwargs)

    return call


def _with_devices(function: Any) -> Any:
    """Return a function all of whose arguments are mapped where they are devices; a number given as `device=` too."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs = {name: CPU if name == "device" and type(value) is int else to_cpu(value) for name, value in kwargs.items()}
        return function(*map(to_cpu, args), **kwargs)

    return call


def _patch_factories(torch: Any) -> None:
    """`torch.zeros(..., device="cuda")` and the like."""
    with contextlib.suppress(ImportError, AttributeError):  # an old torch
        # remembers what it finds at its first call: the functions themselves, for `with torch.device("meta")`
        importlib.import_module("torch.utils._device")._device_constructors()
    for name in _FACTORIES:
        _replace(torch, name, _with_device)
    _replace(torch, "load", _load)
    _replace(torch, "set_default_device", _with_devices)
    torch.Generator = _generator_class(torch.Generator)


def _load(function: Any) -> Any:
    """Return `torch.load` that puts on the CPU what was saved on a GPU."""

    @functools.wraps(function)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        location = CPU if map_location is None else map_location
        if isinstance(location, dict):
            location = {source: to_cpu(target) for source, target in location.items()}
        return function(f, to_cpu(location), *args, **kwargs)

    return load


def _generator_class(real: Any) -> Any:
    """Return a subclass of the C type `torch.Generator` that is always one of the CPU."""

    def __new__(cls: Any, device: Any = CPU) -> Any:
        return real.__new__(cls, to_cpu(device))

    def __reduce__(self: Any) -> Any:
        _, arguments, *state = real.__reduce__(self)
        return (real, arguments, *state)

    namespace = stand_in_namespace(real, "torch")
    namespace["__new__"] = __new__
    if "__reduce__" in real.__dict__:
        namespace["__reduce__"] = __reduce__
    return stand_in_metaclass(real)(real.__name__, (real,), namespace)


def _patch_tensors(torch: Any) -> None:
    """Methods of tensors that move or make them."""
    tensor = torch.Tensor
    for name in _TENSOR_METHODS:
        _replace(tensor, name, _moved if name == "to" else _with_device)
    tensor.cuda = lambda self, *args, **kwargs: self
    tensor.pin_memory = lambda self, *args, **kwargs: self


def _moved(function: Any) -> Any:
    """Return `Tensor.to`; a number is the index of a GPU."""
    mapped = _with_devices(function)

    @functools.wraps(function)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = (CPU, *args[1:])
        return mapped(self, *args, **kwargs)

    return to


def _patch_modules(torch: Any) -> None:
    """`Module.cuda`; `Module.to` reads the device itself, so it is mapped before."""
    module = torch.nn.Module
    module.cuda = lambda self, *args, **kwargs: self
    module.to = _moved(module.to)
    module.to_empty = _with_devices(module.to_empty)
    loader = getattr(getattr(torch.utils, "data", None), "DataLoader", None)
    if loader is not None:
        loader.__init__ = _without(loader.__init__, pin_memory=False, pin_memory_device="")


def _without(function: Any, **fixed: Any) -> Any:
    """Return a function that gets other values for some of its keywords, where they are given."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{name: fixed.get(name, value) for name, value in kwargs.items()})

    return call


def _patch_contexts(torch: Any) -> None:
    """Autocast, and `with torch.device("cuda")`."""
    autocast = getattr(getattr(torch.amp, "autocast_mode", None), "autocast", None)
    if autocast is not None:
        autocast.__init__ = _with_devices(autocast.__init__)
    context = getattr(getattr(torch.utils, "_device", None), "DeviceContext", None)
    if context is not None:
        context.__init__ = _with_devices(context.__init__)


class _Event:
    """An event of a stream: the clock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what a real one takes."""
        self._t = time.perf_counter()

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        self._t = time.perf_counter()

    def elapsed_time(self, end: Any) -> float:
        """Return the time to another event, milliseconds."""
        return float(1000.0 * (end._t - self._t))

    def query(self) -> bool:
        """Be over."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait(self, stream: Any = None) -> None:
        """Wait for nothing."""


class _Stream:
    """A stream: everything on it is done already."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what a real one takes."""

    def __enter__(self) -> Any:
        """Give itself."""
        return self

    def __exit__(self, *exc_info: Any) -> None:
        """Let every exception through."""

    def query(self) -> bool:
        """Be over."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    wait_event = wait_stream = lambda self, other: None

    def record_event(self, event: Any = None) -> Any:
        """Note the time."""
        event = event or _Event()
        event.record()
        return event


def _told_to_the_program(original: Any, answer: Any) -> Any:
    """Return a function that gives an answer to the program, while torch itself asks the original."""

    def ask(*args: Any, **kwargs: Any) -> Any:
        asking = sys._getframe(1).f_globals.get("__name__", "")
        if original is not None and (asking == "torch" or asking.startswith("torch.")):
            return original(*args, **kwargs)
        return answer

    return ask


def _patch_cuda(torch: Any) -> None:
    """What asks a GPU for nothing but to be there."""
    cuda = torch.cuda
    for name in _NO_OPS:
        setattr(cuda, name, lambda *args, **kwargs: None)
    properties = types.SimpleNamespace(name=NAME, total_memory=0, major=0, minor=0, multi_processor_count=1)
    answers = {
        **dict.fromkeys(_ZERO_COUNTERS, 0),
        "device_count": max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1)),
        "memory_stats": {},
        "mem_get_info": (0, 0),
        "is_bf16_supported": True,
        "get_device_name": NAME,
        "get_device_capability": (0, 0),
        "get_device_properties": properties,
    }
    for name, answer in answers.items():
        setattr(cuda, name, _told_to_the_program(getattr(cuda, name, None), answer))
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: _Stream()
    cuda.stream = lambda stream=None: contextlib.nullcontext(stream)
    cuda.device = lambda device=None: contextlib.nullcontext(device)
    cuda.Event, cuda.Stream = _Event, _Stream
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(cuda.nvtx, name, lambda *args, **kwargs: None)


def _patch_distributed(torch: Any) -> None:
    """Process groups of gloo, and wrappers that are told of no GPU."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    for name in ("init_process_group", "new_group"):
        original = getattr(distributed, name)
        _replace_in(torch, name, original, _with_gloo(original))
    wrapper = getattr(getattr(torch.nn, "parallel", None), "DistributedDataParallel", None)
    if wrapper is not None:
        wrapper.__init__ = _without_gpus(wrapper.__init__)


def _with_gloo(function: Any) -> Any:
    """Return a function that makes a process group of gloo, whatever is asked for; it is bound to no GPU."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        if function.__name__ == "init_process_group":
            args = (_backend(args[0]), *args[1:]) if args else args
        if not args or "backend" in kwargs:
            kwargs["backend"] = _backend(kwargs.get("backend"))
        kwargs.pop("pg_options", None)
        return function(*args, **kwargs)

    return call


def _backend(name: Optional[Any]) -> Any:
    """Return the backend in place of one that needs GPUs."""
    return "gloo" if name is None or "nccl" in str(name).lower() else name


def _without_gpus(function: Any) -> Any:
    """Return the start of DistributedDataParallel without `device_ids` and `output_device`."""

    @functools.wraps(function)
    def start(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any) -> None:
        function(self, module, None, None, *args, **kwargs)

    return start


def _replace_in(torch: Any, name: str, original: Any, replacement: Any) -> None:
    """Set a function in every loaded module of torch that holds the original under its name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch.distributed") and getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, replacement)


def _patch_mesh(session: Any, module: Any) -> None:
    """Meshes of CPUs."""
    for name in ("init_device_mesh",):
        original = getattr(module, name, None)
        if original is not None:
            replacement = _with_devices(original)
            setattr(module, name, replacement)
            distributed = sys.modules.get("torch.distributed")
            if getattr(distributed, name, None) is original:
                setattr(distributed, name, replacement)
    mesh = getattr(module, "DeviceMesh", None)
    if mesh is not None:
        mesh.__init__ = _with_devices(mesh.__init__)
