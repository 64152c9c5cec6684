"""Steps that torch's hooks do not tell: compiled ones, those of what is no optimizer of torch, and those of a named function.

- An optimizer inside a compiled function leaves itself in a mark (see traced). It is taken up where gradients are cleared, a
  schedule goes on or the next forward begins, with the learning rates of that moment.
- Where the program has no optimizer of torch at all, gradients that are cleared after a backward pass have been used: that is
  a step. A program that clears gradients which nothing used, to try something out before it trains, is counted wrong; its
  recipe names the step function.
- Where a recipe names one, each of its calls is a step, whatever fires inside: also one in which the program's own loss
  scaling has left the optimizers out.
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Optional

from . import traced
from .optimizer_watch import OptimizerWatch, Unseen


class UnseenSteps:
    """Finds such steps and reports them as fires."""

    def __init__(self, session: Any, torch: Any, steps: Any, optimizers: OptimizerWatch, model: Any) -> None:
        """Report to `steps`; the parameters are those of the root module that `model` knows."""
        self._session = session
        self._torch = torch
        self._steps = steps
        self._optimizers = optimizers
        self._model = model
        self.mark = traced.CompiledStep()
        self._num_backwards = 0  # since such a step
        self._has_optimizer: Optional[bool] = None  # whether the program has one of torch's; None: not looked yet
        self._is_by_clearing = False
        self._unseen = Unseen(model.trained_params)
        self._depth = 0
        self._fires_before = 0
        self._backwards_before = 0
        self._early: Any = None  # the fire as it was when the named function began

    def install_clearing(self, timed: Callable[..., Any], is_compiling: Callable[[], bool]) -> None:
        """Look where gradients are cleared."""
        look = timed(self._look_at_clearing)

        def tell() -> None:
            if self.mark.optimizer is not None or (self._num_backwards and not self._optimizers.num_fires):
                look()

        for owner in (self._torch.optim.Optimizer, self._torch.nn.Module):
            owner.zero_grad = traced.told_before(owner.zero_grad, tell, is_compiling)
        schedule = getattr(self._torch.optim.lr_scheduler, "LRScheduler", None)
        if schedule is not None:  # the rates of a compiled step are read before they change
            schedule.step = traced.told_before(schedule.step, tell, is_compiling)

    def before_pass(self) -> None:
        """Report a compiled step, if one ran: a forward or backward is about to begin."""
        if self.mark.optimizer is not None:
            self._optimizers.add_compiled(self.mark.take())

    def note_backward(self) -> None:
        """Count a backward pass that begins."""
        self._num_backwards += 1

    def finish(self) -> None:
        """At exit: the last step has no clearing behind it."""
        self.before_pass()
        if self._is_by_clearing and self._num_backwards and not self._depth:
            self._add_unseen("zero_grad")

    def _look_at_clearing(self) -> None:
        """Gradients are about to be cleared: if a backward made them and no optimizer of torch used them, that is a step."""
        self.before_pass()
        if self._optimizers.num_fires or self._steps.is_by_function or self._has_torch_optimizer():
            self._num_backwards = 0
            return
        self._is_by_clearing = True
        self._add_unseen("zero_grad")

    def _has_torch_optimizer(self) -> bool:
        """Tell whether the program has made an optimizer of torch: then its hooks will tell."""
        if self._has_optimizer is None:
            optimizer_class = self._torch.optim.Optimizer
            self._has_optimizer = any(issubclass(type(found), optimizer_class) for found in gc.get_objects())
        return self._has_optimizer

    def _add_unseen(self, name: str) -> None:
        self._num_backwards = 0
        self._steps.add_fire(self._unseen_fire(name), is_skipped=False)

    def _unseen_fire(self, name: str) -> Any:
        """Return a fire of the root's parameters as they are now."""
        return self._optimizers.unseen_fire(self._unseen, name)

    def begin_function(self) -> None:
        """The named function is about to run."""
        self._depth += 1
        if self._depth > 1:
            return
        self._steps.begin_function()
        self._fires_before, self._backwards_before = self._num_all_fires(), self._num_backwards
        self._early = self._unseen_fire(self._session.settings.step_function)

    def end_function(self, has_returned: bool) -> None:
        """The named function is over; what it raised, if anything, ends no step."""
        self._depth -= 1
        early, self._early = self._early, None
        if self._depth or not has_returned:
            return
        self.before_pass()
        if self._num_all_fires() == self._fires_before:
            late = self._unseen_fire(early.name)
            has_run = self._num_backwards != self._backwards_before  # then those before it are of the step before
            fire = late if (has_run and late.has_gradients) or not early.has_gradients else early
            self._steps.add_fire(fire, is_skipped=self._has_torch_optimizer())
        self._num_backwards = 0
        self._steps.end_function()

    def _num_all_fires(self) -> int:
        return len(self._steps.open_step.fires)
