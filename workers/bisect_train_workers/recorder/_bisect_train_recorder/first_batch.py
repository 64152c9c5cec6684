"""Events about the first training forward: what went in, and the accelerator that it runs on."""

from __future__ import annotations

from typing import Any, Dict, List

from .inputs import first_values, tensor_inputs

NUM_FIRST_VALUES = 64
MIB = 1 << 20


def is_capturing(torch: Any) -> bool:
    """Tell whether a CUDA graph is being captured, during which nothing may wait for the device."""
    cuda = torch.cuda
    return bool(hasattr(torch._C, "_cuda_getDeviceCount") and cuda.is_initialized() and cuda.is_current_stream_capturing())


def describe_first_batch(session: Any, torch: Any, module: Any, args: Any, kwargs: Any) -> None:
    """Event first_batch: the root's class, and the shapes and first values of its tensors."""
    tensors = list(tensor_inputs(torch, args, kwargs))
    shapes = [[key, list(value.shape), str(value.dtype)] for key, value in tensors]
    params = list(module.parameters())
    data: Dict[str, Any] = {"root": type(module).__qualname__, "inputs": shapes}
    data["device"] = next((str(param.device) for param in params), None)
    data["num_params"] = sum(param.numel() for param in params if not torch.nn.parameter.is_lazy(param))
    if not is_capturing(torch):
        data["values"] = session.guarded(_read_values)(torch, tensors)
    session.event("first_batch", **data)
    if params and params[0].device.type == "cuda":
        session.guarded(_describe_device)(session, torch, params[0].device)


def _read_values(torch: Any, tensors: Any) -> List[List[Any]]:
    """Return [key, first values] of each tensor; waits for a device."""
    values = [[key, first_values(torch, tensor, NUM_FIRST_VALUES)] for key, tensor in tensors]
    return [[key, found.tolist()] for key, found in values if found is not None]


def _describe_device(session: Any, torch: Any, device: Any) -> None:
    """Event device."""
    found = torch.cuda.get_device_properties(device)
    session.event(
        "device",
        name=found.name,
        total_mib=found.total_memory / MIB,
        driver=_driver_version(torch),
        capability=f"{found.major}.{found.minor}",
    )


def _driver_version(torch: Any) -> str:
    """Return the version of NVIDIA's kernel module, where it says so, else of the CUDA interface of the driver."""
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(torch._C._cuda_getDriverVersion() if hasattr(torch._C, "_cuda_getDriverVersion") else "")
