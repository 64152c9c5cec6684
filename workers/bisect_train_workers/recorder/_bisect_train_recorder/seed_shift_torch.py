"""Shifts the seeds given to torch: global functions of every device, and `torch.Generator`."""

from __future__ import annotations

import sys
from typing import Any

from .seed_shift_numpy import stand_in_metaclass, stand_in_namespace

_DEVICE_MODULES = ("cuda", "xpu", "mps", "mtia")
_SEED_FUNCTIONS = ("manual_seed", "manual_seed_all")


def install(shifter: Any, torch: Any) -> None:
    """Patch every module that holds one of torch's seeding functions."""
    for module_name in ("torch", "torch.random"):
        _wrap_function(shifter, module_name, "manual_seed")
    for device in _DEVICE_MODULES:
        for module_name in (f"torch.{device}.random", f"torch.{device}"):
            for name in _SEED_FUNCTIONS:
                _wrap_function(shifter, module_name, name)
    torch.Generator = generator_class(shifter, torch.Generator)


def _wrap_function(shifter: Any, module_name: str, name: str) -> None:
    """Replace one function by its shifting version, where it exists and is not wrapped already."""
    module = sys.modules.get(module_name)
    function = getattr(module, name, None)
    if function is None or getattr(function, "_is_seed_shifting", False):
        return
    wrapped = shifter.wrap(function, f"{module_name}.{name}")
    wrapped._is_seed_shifting = True  # type: ignore[attr-defined]
    setattr(module, name, wrapped)


def generator_class(shifter: Any, real: Any) -> Any:
    """Return a subclass of the C type `torch.Generator` whose `manual_seed` shifts.

    Its pickles name the real class and so load without the recorder.
    """

    def manual_seed(self: Any, seed: int) -> Any:
        return shifter.calling(real.manual_seed, self, shifter.shifted(seed, "torch.Generator.manual_seed"))

    def __reduce__(self: Any) -> Any:
        _, arguments, *state = real.__reduce__(self)
        return (real, arguments, *state)

    namespace = stand_in_namespace(real, "torch")
    namespace["manual_seed"] = manual_seed
    if "__reduce__" in real.__dict__:
        namespace["__reduce__"] = __reduce__
    return stand_in_metaclass(real)(real.__name__, (real,), namespace)
