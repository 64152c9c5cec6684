"""Sees the losses (roots of backward passes), the gradient scaler and the clipping of gradients."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List

from .readout import local_part

Timed = Callable[[Callable[..., None]], Callable[..., None]]  # see StepRecorder.timed


def loss_roots(torch: Any, tensors: Any, grad_tensors: Any) -> List[Any]:
    """Return the one-element roots of a backward pass, unscaled where a scaler multiplied them."""
    if grad_tensors is None and type(tensors) is torch.Tensor:  # what nearly every program does
        return [getattr(tensors, "_bisect_train_unscaled", tensors)] if tensors.numel() == 1 else []
    grads = grad_tensors if isinstance(grad_tensors, (list, tuple)) else [grad_tensors]
    if any(grad is not None and grad.numel() != 1 for grad in grads):
        return []  # a part of a larger backward pass, such as a checkpointed segment
    roots = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    losses = [root for root in roots if isinstance(root, torch.Tensor) and root.numel() == 1]
    return [getattr(loss, "_bisect_train_unscaled", loss) for loss in losses]


def watch_backward(torch: Any, on_backward: Callable[[Any, Any], None]) -> None:
    """Replace `torch.autograd.backward`, which `Tensor.backward` looks up at each call.

    Backward passes inside backward passes (reentrant checkpointing) are not reported.
    """
    original = torch.autograd.backward
    depth = [0]

    @functools.wraps(original)
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not depth[0]:
            on_backward(tensors, grad_tensors)
        depth[0] += 1
        try:
            return original(tensors, grad_tensors, *args, **kwargs)
        finally:
            depth[0] -= 1

    torch.autograd.backward = backward


def watch_scaler(torch: Any, optimizers: Any, timed: Timed) -> None:
    """Remember unscaled losses, and report steps that the gradient scaler skips."""
    for scaler_class in _scaler_classes(torch):
        _watch_scale(torch, scaler_class, timed)
        _watch_scaler_step(scaler_class, optimizers, timed)


def _scaler_classes(torch: Any) -> List[Any]:
    """Return the base classes of gradient scalers: torch.amp's, or torch.cuda.amp's before 2.3."""
    found = getattr(torch.amp, "GradScaler", None)
    if found is None:
        module = sys.modules.get("torch.cuda.amp.grad_scaler")
        found = getattr(module, "GradScaler", None)
    return [] if found is None else [found]


def _watch_scale(torch: Any, scaler_class: Any, timed: Timed) -> None:
    """Attach the unscaled loss to what `scale` returns."""
    original = scaler_class.scale

    def remember(unscaled: Any, scaled: Any) -> None:
        if isinstance(unscaled, torch.Tensor) and scaled is not unscaled:
            scaled._bisect_train_unscaled = local_part(torch, unscaled).detach()

    remember = timed(remember)

    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        remember(outputs, scaled)
        return scaled

    scaler_class.scale = scale


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


def watch_clipping(torch: Any, on_norm: Callable[[Any], None]) -> None:
    """Report the norm before clipping: what `clip_grad_norm_` returns or its newer half is given."""
    module = sys.modules["torch.nn.utils.clip_grad"]
    original = module.clip_grad_norm_  # type: ignore[attr-defined]

    @functools.wraps(original)
    def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
        norm = original(*args, **kwargs)
        on_norm(norm)
        return norm

    _replace_in_modules("clip_grad_norm_", clip_grad_norm_)
    with_norm = getattr(torch.nn.utils, "clip_grads_with_norm_", None)
    if with_norm is None:
        return

    @functools.wraps(with_norm)
    def clip_grads_with_norm_(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        on_norm(total_norm)
        return with_norm(parameters, max_norm, total_norm, *args, **kwargs)

    _replace_in_modules("clip_grads_with_norm_", clip_grads_with_norm_)


def _replace_in_modules(name: str, function: Any) -> None:
    """Set a public clipping function in the modules that hold it; torch's private calls stay."""
    for module_name in ("torch.nn.utils", "torch.nn.utils.clip_grad"):
        setattr(sys.modules[module_name], name, function)
