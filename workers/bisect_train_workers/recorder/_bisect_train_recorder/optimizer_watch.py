"""Turns torch's global optimizer hooks into fires: one per optimizer that really stepped.

Containers of optimizers are optimizers themselves (torchtitan), so hooks nest; only the innermost
count. Gradients are read before the step, where optimizers have not yet changed them, or after
it where a closure computes them inside.

What steps without a word to torch's hooks makes a fire, too: an optimizer inside a compiled function, and one that is none
of torch's (see step_recorder).
"""

from __future__ import annotations

import weakref
from operator import attrgetter
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .pieces import Squares, num_holders, squares_by_holders
from .readout import Number, local_part, snapshot
from .tensor_sums import squares_and_norms

# Loops in C: half the time of comprehensions where the caches are cold.
_GRAD, _DTYPE = attrgetter("grad"), attrgetter("dtype")
_FLOAT = {float}
NO_SCALING: List[Optional[Number]] = [None, None]  # never changed: it holds no tensor


class Fire:
    """What one optimizer saw in one step. Numbers may still be on a device."""

    __slots__ = (
        *("_optimizer", "name", "has_inner", "has_gradients", "lrs", "grad_sq_parts", "scaling"),
        *("num_missing", "param_dtypes", "grad_dtypes", "_grad_norms", "_idxs_without"),
        *("pieces", "num_losses", "num_evaluations", "_has_params"),
    )

    def __init__(self, torch: Any, optimizer: Any) -> None:
        """Take name and learning rates; gradients come with `read_gradients`."""
        self._optimizer = weakref.ref(optimizer)  # a program may drop it to free memory
        self.name = type(optimizer).__name__
        self.has_inner = False
        self.has_gradients = False
        self.lrs: List[Number] = [group.get("lr") for group in optimizer.param_groups]
        self._has_params = [bool(group["params"]) for group in optimizer.param_groups]
        if set(map(type, self.lrs)) != _FLOAT:
            self.lrs = [snapshot(torch, lr) for lr in self.lrs]
        self.grad_sq_parts: List[Number] = []
        # A gradient scaler leaves its factor, and whether it found infinities, to fused optimizers.
        scale, found_inf = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        self.scaling = NO_SCALING
        if scale is not None or found_inf is not None:
            self.scaling = [snapshot(torch, scale), snapshot(torch, found_inf)]
        self._grad_norms: List[Number] = []  # of the parameters that have a gradient
        self._idxs_without: List[int] = []  # of those that have none
        self.pieces: Optional[Squares] = None  # of the gradients, where some are pieces of whole ones
        self.num_losses = 0  # of the step before its closure ran
        self.num_evaluations: Optional[int] = None  # of closures, by the time when it began
        self.num_missing = 0
        self.param_dtypes: Any = frozenset()
        self.grad_dtypes: Any = frozenset()

    def parameters(self) -> List[Any]:
        """Return the optimizer's parameters; none once it is gone."""
        optimizer = self._optimizer()
        if optimizer is None:
            return []
        return [param for group in optimizer.param_groups for param in group["params"]]

    def rates(self, fires: List[Any]) -> List[Number]:
        """Return its learning rates, given all fires of the step: of the one group that its optimizer fired for, if so."""
        if sum([fire._optimizer is self._optimizer for fire in fires]) == 1:  # one reference for each optimizer, alive or not
            return self.lrs
        return [lr for lr, has_params in zip(self.lrs, self._has_params) if has_params]

    def is_of(self, optimizer: Any) -> bool:
        """Tell whether this is a fire of that optimizer object."""
        return self._optimizer() is optimizer

    def read_gradients(self, torch: Any) -> None:
        """Take sum of squares, dtypes and the number of missing gradients as they are now."""
        params = self.parameters()
        grads = list(map(_GRAD, params))
        classes = set(map(type, grads))
        if type(None) in classes:
            self._idxs_without = [idx for idx, grad in enumerate(grads) if grad is None]
            self.num_missing = sum([params[idx].requires_grad for idx in self._idxs_without])
            grads = [grad for grad in grads if grad is not None]
        holders: List[int] = []
        if classes != {torch.Tensor}:
            holders = [num_holders(grad) for grad in grads]
            grads = [local_part(torch, grad) for grad in grads]
        self.has_gradients = bool(grads)
        self.param_dtypes = set(map(_DTYPE, params))
        self.grad_dtypes = set(map(_DTYPE, grads))
        self.grad_sq_parts, self._grad_norms = squares_and_norms(torch, grads, self.grad_dtypes)
        if any(holders):
            self.pieces = squares_by_holders(torch, holders, self._grad_norms)

    def gradients(self) -> Iterator[Tuple[Any, Optional[Number]]]:
        """Yield (parameter, norm of its gradient) as they were; None for a trainable one without, none for empty parts."""
        params = self.parameters()
        if len(params) != len(self._grad_norms) + len(self._idxs_without):
            return  # a parameter group was added meanwhile
        without, norms = frozenset(self._idxs_without), iter(self._grad_norms)
        for idx, param in enumerate(params):
            norm = None if idx in without else next(norms)
            is_asked = param.requires_grad if norm is None else getattr(param, "_local_tensor", param).numel()
            if is_asked:
                yield param, norm


class Unseen:
    """Stands for what steps parameters without being an optimizer of torch: the parameters are all that is known."""

    def __init__(self, params: Callable[[], List[Any]]) -> None:
        """Ask for the parameters each time: they may be gone by then."""
        self._params = params

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        """One group without a learning rate."""
        return [{"params": self._params()}]


class OptimizerWatch:
    """Keeps the stack of optimizer steps in progress and reports the innermost ones."""

    def __init__(self, torch: Any, steps: Any) -> None:
        """Report to `steps.add_fire(fire)`."""
        self._torch = torch
        self._steps = steps
        self._stack: List[Fire] = []
        self.num_fires = 0

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Global pre-hook; returns None so that the step's arguments stay as they are."""
        if self._stack:
            self._enter_nested(optimizer)
        fire = Fire(self._torch, optimizer)
        self._stack.append(fire)
        if not (kwargs.get("closure") or any(map(callable, args))):  # args begin with the optimizer
            fire.read_gradients(self._torch)
        else:
            fire.num_losses = self._steps.num_open_losses()
            fire.num_evaluations = _num_evaluations(optimizer)

    def _enter_nested(self, optimizer: Any) -> None:
        """Mark the step in progress as one that contains others."""
        # An exception inside a step leaves its entry behind: drop it when the optimizer is back.
        for idx, fire in enumerate(self._stack):
            if fire.is_of(optimizer):
                del self._stack[idx:]
                break
        if self._stack:
            self._stack[-1].has_inner = True

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Global post-hook."""
        while self._stack:
            fire = self._stack.pop()
            if fire.is_of(optimizer):
                self._complete(fire, optimizer)
                return

    def add_skipped(self, optimizer: Any) -> None:
        """Report a step that a gradient scaler left out because of infinite gradients."""
        fire = Fire(self._torch, optimizer)
        fire.read_gradients(self._torch)
        self._steps.add_fire(fire, is_skipped=True)

    def add_compiled(self, optimizer: Any) -> None:
        """Report a step that ran inside a compiled function, whose gradients are still there."""
        fire = Fire(self._torch, optimizer)
        fire.read_gradients(self._torch)
        self.num_fires += 1
        self._steps.add_fire(fire, is_skipped=False)

    def unseen_fire(self, unseen: Unseen, name: str) -> Fire:
        """Return the fire of what is no optimizer of torch; gradients that are gone are not missing."""
        fire = Fire(self._torch, unseen)
        fire.name = name
        fire.read_gradients(self._torch)
        if not fire.has_gradients:
            fire.num_missing = 0
        return fire

    def _complete(self, fire: Fire, optimizer: Any) -> None:
        """Report the fire unless it only contained others."""
        if fire.has_inner:
            return
        if not fire.has_gradients:
            fire.read_gradients(self._torch)
            if not fire.has_gradients and self._steps.has_stepped(fire.parameters()):
                return  # a container whose optimizers have stepped inside the backward pass
        self.num_fires += 1
        if fire.num_evaluations is not None:
            num_evaluations = (_num_evaluations(optimizer) or 0) - fire.num_evaluations
            self._steps.keep_first_evaluation(fire.num_losses, num_evaluations)
        self._steps.add_fire(fire, is_skipped=False)


def _num_evaluations(optimizer: Any) -> Optional[int]:
    """Return how often an optimizer that evaluates its closure several times a step (LBFGS) has done so; None for others."""
    if type(optimizer).__name__ != "LBFGS":
        return None
    state = optimizer.state.get(optimizer.param_groups[0]["params"][0]) or {}
    return int(state.get("func_evals", 0))
