"""Sees the losses (roots of backward passes) and the gradient scaler."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List

from .readout import local_part

Timed = Callable[[Callable[..., None]], Callable[..., None]]  # see StepRecorder.timed


def loss_roots(torch: Any, tensors: Any, grad_tensors: Any) -> List[Any]:
    """Return the one-element roots of a backward pass, unscaled where a scaler multiplied them."""
    if getattr(tensors, "is_meta", False):
        return []  # operations are counted, nothing is trained
    if grad_tensors is None and type(tensors) is torch.Tensor:  # what nearly every program does
        return [getattr(tensors, "_bisect_train_unscaled", tensors)] if tensors.numel() == 1 else []
    grads = grad_tensors if isinstance(grad_tensors, (list, tuple)) else [grad_tensors]
    if any(grad is not None and grad.numel() != 1 for grad in grads):
        return []  # a part of a larger backward pass, such as a checkpointed segment
    roots = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    losses = [root for root in roots if isinstance(root, torch.Tensor) and root.numel() == 1]
    return [getattr(loss, "_bisect_train_unscaled", loss) for loss in losses]


class BackwardWatch:
    """Replaces `torch.autograd.backward`, which `Tensor.backward` looks up at each call.

    Backward passes inside backward passes (reentrant checkpointing) are not reported.
    """

    def __init__(self, on_backward: Callable[[Any, Any], None]) -> None:
        """Call `on_backward(tensors, grad_tensors)` before each."""
        self._on_backward = on_backward
        self._depth = 0

    @property
    def is_running(self) -> bool:
        """Whether a backward pass runs: forwards inside it are those of checkpointed parts, run once more."""
        return self._depth > 0

    def install(self, torch: Any) -> None:
        """Take the place of torch's function."""
        original, on_backward = torch.autograd.backward, self._on_backward

        @functools.wraps(original)
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                on_backward(tensors, grad_tensors)
            self._depth += 1
            try:
                return original(tensors, grad_tensors, *args, **kwargs)
            finally:
                self._depth -= 1

        torch.autograd.backward = backward


def watch_scaler(torch: Any, optimizers: Any, timed: Timed) -> None:
    """Remember unscaled losses, and report steps that the gradient scaler skips."""
    for scaler_class in _scaler_classes(torch):
        _watch_scale(torch, scaler_class, timed)
        _watch_scaler_step(scaler_class, optimizers, timed)


OTHER_SCALERS = {  # module -> class and method that multiplies a loss by itself
    "torch.distributed.fsdp.sharded_grad_scaler": ("ShardedGradScaler", "scale"),
    "deepspeed.runtime.fp16.loss_scaler": ("LossScalerBase", "scale_loss"),
}


def watch_other_scaler(torch: Any, module: Any, timed: Timed) -> None:
    """Remember the unscaled losses of one of OTHER_SCALERS, once its module has been imported."""
    class_name, method = OTHER_SCALERS[module.__name__]
    scaler_class = getattr(module, class_name, None)
    if hasattr(scaler_class, method):
        _watch_scale(torch, scaler_class, timed, method)


def _scaler_classes(torch: Any) -> List[Any]:
    """Return the base classes of gradient scalers: torch.amp's, or torch.cuda.amp's before 2.3."""
    found = getattr(torch.amp, "GradScaler", None)
    if found is None:
        module = sys.modules.get("torch.cuda.amp.grad_scaler")
        found = getattr(module, "GradScaler", None)
    return [] if found is None else [found]


def _watch_scale(torch: Any, scaler_class: Any, timed: Timed, method: str = "scale") -> None:
    """Attach the unscaled loss to what `scale` returns."""
    original = getattr(scaler_class, method)

    def remember(unscaled: Any, scaled: Any) -> None:
        if isinstance(unscaled, torch.Tensor) and scaled is not unscaled:
            scaled._bisect_train_unscaled = local_part(torch, unscaled).detach()

    remember = timed(remember)

    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        remember(outputs, scaled)
        return scaled

    setattr(scaler_class, method, scale)


def _watch_scaler_step(scaler_class: Any, optimizers: Any, timed: Timed) -> None:
    """Report a skipped step where `step` ends without any optimizer having fired."""
    original = scaler_class.step
    add_skipped = timed(optimizers.add_skipped)

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        num_fires = optimizers.num_fires
        result = original(self, optimizer, *args, **kwargs)
        if optimizers.num_fires == num_fires:
            add_skipped(optimizer)
        return result

    scaler_class.step = step
