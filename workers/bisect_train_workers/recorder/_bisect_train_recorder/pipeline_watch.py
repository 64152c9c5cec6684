"""Losses of torch's pipeline schedules: the last stage has them, one per micro-batch, and computes them itself.

Some schedules run no backward pass that begins with a loss, so it is taken where it is computed. Where a schedule divides the
gradients by the number of micro-batches, each loss is a mean over its own, and counts as that share of the step's.

Before its first step a stage may be run once on memory that nobody has filled, to learn the shapes: that is no batch.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List


class PipelineWatch:
    """Knows whether a schedule runs or prepares a stage, and takes its losses."""

    def __init__(self, torch: Any, add_loss: Callable[[Any], None]) -> None:
        """Call `add_loss(loss)` for each micro-batch that a backward pass follows."""
        self._torch = torch
        self._add_loss = add_loss
        self._running: List[Any] = []
        self._num_preparing = 0

    @property
    def is_preparing(self) -> bool:
        """Whether a stage is being prepared: a forward of it now is for the shapes, its inputs have no meaning."""
        return self._num_preparing > 0

    @property
    def is_running(self) -> bool:
        """Whether a schedule runs: the backward passes inside it are its own."""
        return bool(self._running)

    def install(self, session: Any, module: Any) -> None:
        """Watch the schedules, once their module has been imported."""
        for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
            schedule_class = getattr(module, name, None)
            if schedule_class is not None:
                schedule_class.step = self._noted(schedule_class.step)
        base = module._PipelineSchedule
        base._maybe_compute_loss = self._told(base._maybe_compute_loss)
        stages = sys.modules.get("torch.distributed.pipelining.stage")
        for stage_class in list(vars(stages).values()) if stages else ():
            prepare = vars(stage_class).get("_prepare_forward_infra") if isinstance(stage_class, type) else None
            if prepare is not None:
                stage_class._prepare_forward_infra = self._preparing(prepare)

    def _preparing(self, original: Any) -> Any:
        """Return the method that prepares a stage, noted while it runs."""

        @functools.wraps(original)
        def prepare(stage: Any, *args: Any, **kwargs: Any) -> Any:
            self._num_preparing += 1
            try:
                return original(stage, *args, **kwargs)
            finally:
                self._num_preparing -= 1

        return prepare

    def _noted(self, original: Any) -> Any:
        """Return the method that runs a schedule, noted while it runs."""

        @functools.wraps(original)
        def step(schedule: Any, *args: Any, **kwargs: Any) -> Any:
            self._running.append(schedule)
            try:
                return original(schedule, *args, **kwargs)
            finally:
                self._running.pop()

        return step

    def _told(self, original: Any) -> Any:
        """Return the method that computes the loss of a micro-batch, if this stage is the last one."""

        @functools.wraps(original)
        def compute(schedule: Any, *args: Any, **kwargs: Any) -> Any:
            losses = getattr(schedule, "_internal_losses", ())
            num_before = len(losses)
            result = original(schedule, *args, **kwargs)
            for loss in losses[num_before:]:
                self._take(schedule, loss)
            return result

        return compute

    def _take(self, schedule: Any, loss: Any) -> None:
        if loss.requires_grad and getattr(schedule, "_has_backward", True):
            is_mean = bool(getattr(schedule, "scale_grads", False))
            self._add_loss(loss.detach() / schedule._n_microbatches if is_mean else loss)
