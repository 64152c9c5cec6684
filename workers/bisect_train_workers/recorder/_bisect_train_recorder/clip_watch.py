"""Sees the norms of gradients before clipping, and which part of the whole norm a rank has of them."""

from __future__ import annotations

import sys
from typing import Any, Callable, List

from . import traced


class ClipWatch:
    """Reports the norm that a clipping function measured; of clippings inside clippings the outermost."""

    def __init__(self, on_norm: Callable[[Any], None], is_compiling: Callable[[], bool]) -> None:
        """Call `on_norm(norm)`."""
        self._on_norm = on_norm
        self._is_compiling = is_compiling
        self._depth: List[None] = []

    def install(self, torch: Any) -> None:
        """Watch what `clip_grad_norm_` returns, and what its newer half is given."""
        module = sys.modules["torch.nn.utils.clip_grad"]
        original = module.clip_grad_norm_  # type: ignore[attr-defined]
        _replace_in_modules("clip_grad_norm_", traced.result_told(original, self._report, self._is_compiling))
        with_norm = getattr(torch.nn.utils, "clip_grads_with_norm_", None)
        if with_norm is not None:
            watched = traced.argument_told(with_norm, self._report, self._is_compiling, name="total_norm", idx=2)
            _replace_in_modules("clip_grads_with_norm_", watched)

    def install_sharded(self, session: Any, module: Any) -> None:
        """Watch the method of FSDP's first version, once its module is imported; it measures over all ranks."""
        sharded = module.FullyShardedDataParallel
        original = traced.result_told(sharded.clip_grad_norm_, self._on_norm, self._is_compiling)
        sharded.clip_grad_norm_ = traced.in_between(original, self._enter, self._leave, self._is_compiling)

    def _report(self, norm: Any) -> None:
        if not self._depth:
            self._on_norm(norm)

    def _enter(self) -> None:
        self._depth.append(None)

    def _leave(self, has_returned: bool) -> None:
        self._depth.pop()


def _replace_in_modules(name: str, function: Any) -> None:
    """Set a public clipping function in the modules that hold it; torch's private calls stay."""
    for module_name in ("torch.nn.utils", "torch.nn.utils.clip_grad"):
        setattr(sys.modules[module_name], name, function)
