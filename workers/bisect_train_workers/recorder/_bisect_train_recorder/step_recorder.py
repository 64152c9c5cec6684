"""Decides when a step begins and ends, and writes its line.

One hook fire is not one step: several optimizers, one fire per parameter group, skipped steps. A
step closes at the first forward or backward after at least one fire. Its line is written
already when the last optimizer of the step has fired (marked provisional), so that a program that
ends with `os._exit` loses nothing, and again without the mark only if something was added before
the step closed. Readers take the last line of a step. Where a recipe names the function whose calls are the steps, a step
is over when it returns, and fires alone end none.

`self_s` is the recorder's own time from one step's line to the next's: what follows the writing of
a line counts in the next step, and nothing is lost.
"""

from __future__ import annotations

from time import perf_counter, time
from typing import Any, Callable, List, Optional

from . import hashes
from .collective_watch import CollectiveLog
from .data_watch import DataWait
from .graph_capture import GraphCapture
from .memory import MemoryMeter
from .model_watch import ModelWatch
from .open_step import OpenStep
from .own_time import OwnTime
from .pieces import PLAIN, holders_of_norm, num_holders, squares_by_holders
from .profiling import StepProfiler
from .readout import local_part, snapshot
from .step_costs import DeviceClock, children_cpu_s
from .step_line import PlainText
from .tensor_sums import bit_sums, squares_and_norms
from .triage_part import TriagePart


class StepRecorder:
    """Receives forwards, backwards and fires; owns the open step."""

    def __init__(self, session: Any, torch: Any, model: ModelWatch) -> None:
        """Open step 0."""
        self._model = model
        self.wait = DataWait()
        self.collectives = CollectiveLog(session, torch.distributed)
        self._session = session
        self._torch = torch
        self._memory = MemoryMeter(torch)
        self._capture = GraphCapture(session, torch)
        self.open_step = self._new_step(0)  # the step that is being collected
        self._closed: Optional[OpenStep] = None
        self._plain = PlainText()
        self._own_time = OwnTime()
        self._reported_self_s = 0.0  # by the lines of closed steps
        self._num_expected_fires = 1
        self._previous_end: Optional[float] = None
        self._previous_cpu_s: Optional[float] = None
        self._device = DeviceClock(torch)
        self._profiler = StepProfiler(session, torch) if session.settings.is_profile_asked else None
        self._is_done = False
        self._is_written = False
        self._gradients_of: Optional[int] = None  # the step whose gradients an event describes
        self._has_still = False
        self.after_first_step: Optional[Callable[[Any], None]] = None
        self.is_by_function = bool(session.settings.step_function)
        session.step_idx = 0

    def _new_step(self, step_idx: int) -> OpenStep:
        """Return an empty step."""
        return OpenStep(self._torch, step_idx, TriagePart(self._torch) if self._session.has_triage else None)

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the hook guarded, silent in forks, and its time counted as the recorder's own."""
        return self._capture.leave_out(self._session.guarded_hook(function, self._own_time))

    def begin_pass(self) -> bool:
        """Close the step, if it is over: a forward or backward is about to run.

        Returns:
            Whether as many steps as the settings ask for have closed.
        """
        if self._is_over():
            self._close()
        return self._is_done

    def _is_over(self) -> bool:
        """Tell whether the open step has ended: an optimizer has stepped, or the named function has returned."""
        return self.open_step.is_over if self.is_by_function else bool(self.open_step.fires)

    def begin_function(self) -> None:
        """Close the step, if it is over: the named step function is about to run."""
        self.begin_pass()

    def end_function(self) -> None:
        """Write the line: the named step function has returned."""
        self.open_step.is_over = True
        self._write(is_provisional=True)

    def num_open_losses(self) -> int:
        """Return how many losses belong to the step that is about to end."""
        return 0 if self._is_over() else len(self.open_step.losses)

    def keep_first_evaluation(self, num_before: int, num_evaluations: int) -> None:
        """Drop the losses of all but the first evaluation of a closure; `num_before` losses were there before it."""
        losses = self.open_step.losses
        num_inside = len(losses) - num_before
        if num_evaluations > 1 and num_inside % num_evaluations == 0:
            del losses[num_before + num_inside // num_evaluations :]

    def has_stepped(self, params: List[Any]) -> bool:
        """Tell whether fires of the open step were of all these parameters."""
        stepped = {id(param) for fire in self.open_step.fires for param in fire.parameters()}
        return bool(stepped) and stepped.issuperset(map(id, params))

    def add_loss(self, tensor: Any) -> None:
        """Add the loss of a micro-batch as it is now."""
        self.open_step.losses.append(snapshot(self._torch, tensor))

    def add_clip_norm(self, value: Any) -> None:
        """Add the norm that a clipping function measured."""
        self.open_step.clip_norms.append(snapshot(self._torch, value))
        self.open_step.clip_holders = holders_of_norm(value)
        self._is_written = False

    def add_fire(self, fire: Any, *, is_skipped: bool) -> None:
        """Add an optimizer's step; write the line once as many fired as in the step before."""
        step = self.open_step
        step.fires.append(fire)
        if is_skipped:
            step.is_skipped = True
        else:
            step.num_real_fires += 1
        ended_at = step.ended_at = perf_counter()
        step.t = time()
        step.ended_cpu_s, step.ended_mark = self._own_time.program_cpu_s() + children_cpu_s(), self._device.mark()
        if self._previous_end is not None:
            step.step_s = ended_at - self._previous_end
        if self._previous_cpu_s is not None:
            step.step_cpu_s = max(0.0, step.ended_cpu_s - self._previous_cpu_s)
        if step.triage is not None:
            step.triage.take(self.wait, self.collectives)
        self._is_written = False
        step.checks.clear()
        if self._session.settings.has_checksum(step.step_idx):
            self._add_checksums(step, [fire])
        if len(step.fires) >= self._num_expected_fires and not self.is_by_function:
            self._write(is_provisional=True)

    def finish(self) -> None:
        """At exit: close the step, with the checksums that a program's last step has."""
        if self._profiler is not None:
            self._session.guarded(self._profiler.finish)()
        if self._is_over():
            if not self.open_step.param_bits:
                self._add_checksums(self.open_step, self.open_step.fires)
            self._is_written = False
            self._close()
        elif self._closed is not None and not self._closed.param_bits:
            # A later forward closed it; parameters are as they were, generators may not be.
            self._write_late_checksums(self._closed)
        if self._closed is not None:
            self._record_model(self._closed, is_last=True)

    def _close(self) -> None:
        """Write the final line and open the next step."""
        step = self.open_step
        if not self._is_written:
            self._write(is_provisional=False)
        self._reported_self_s += step.self_s
        self._num_expected_fires = len(step.fires)
        self._previous_end, self._previous_cpu_s = step.ended_at, step.ended_cpu_s
        self._closed = step
        self.open_step = self._new_step(step.step_idx + 1)
        self.open_step.started_mark = step.ended_mark
        self._is_written = False
        num_steps = self._session.settings.num_steps
        self._is_done = num_steps is not None and self.open_step.step_idx >= num_steps
        if self._is_done or step.step_idx == 0:
            self._record_model(step, is_last=self._is_done)
        if step.step_idx == 0 and self.after_first_step is not None:
            self.after_first_step(self._session)
        self._session.step_idx = self.open_step.step_idx
        if self._profiler is not None:
            self._session.guarded(self._profiler.step_ended)(step.step_idx)

    def _record_model(self, step: OpenStep, *, is_last: bool) -> None:
        """Events about single parameters, for the first step and for the last."""
        guarded = self._session.guarded
        if self._gradients_of != step.step_idx:
            self._gradients_of = step.step_idx
            guarded(self._model.record_gradients)(step)
        if is_last and not self._has_still:
            self._has_still = True
            guarded(self._model.record_still)(step.step_idx)

    def _write(self, *, is_provisional: bool) -> None:
        """Write the line of the open step."""
        step = self.open_step
        if step.param_bits and not step.checks:
            self._add_state(step)
        text = step.text(self._memory, self._plain, self._device)
        step.self_s = self._own_time.now_s() - self._reported_self_s
        mark = ', "provisional": true' if is_provisional else ""
        self._session.writer.write_line(f'{text}, "self_s": {step.self_s!r}{mark}}}')
        self._is_written = True
        if step.values:
            self._write_values(step)

    def _write_values(self, step: OpenStep) -> None:
        """Event batch, once: the first values of the step's first micro-batch, which are on the host by now."""
        values = [found if isinstance(found, list) else [found] for found in step.values]
        data = {"values": [[key, found] for key, found in zip(step.value_keys, values)]}
        self._session.event_of_step("batch", step.step_idx, data)
        step.values = []

    def _add_checksums(self, step: OpenStep, fires: List[Any]) -> None:
        """Add norm and hash of parameters right after they were stepped: some engines put others in their place afterwards."""
        params = [param for fire in fires for param in fire.parameters()]
        if not step.stepped.isdisjoint(map(id, params)):  # stepped twice: what they were in between does not count
            params = [param for fire in step.fires for param in fire.parameters()]
            step.forget_checksums()
        params = list({id(param): param for param in params}.values())
        if not params:
            return
        step.stepped.update(map(id, params))
        parts = [local_part(self._torch, param) for param in params]
        holders = [num_holders(param) for param in params]
        with self._torch.no_grad():
            squares, norms = squares_and_norms(self._torch, parts, {part.dtype for part in parts})
            if any(holders) or step.param_pieces is not None:
                self._add_pieces(step, holders, parts, norms)
            step.param_sq_parts += squares
            step.param_bits += bit_sums(self._torch, parts)
            step.num_params += sum([part.numel() for part in parts])

    def _add_pieces(self, step: OpenStep, holders: List[int], parts: List[Any], norms: List[Any]) -> None:
        """Add what the parameters' whole norm is made of, where some of them are pieces."""
        if step.param_pieces is None:  # what came before were plain tensors
            step.param_pieces = {PLAIN: list(step.param_sq_parts)} if step.param_sq_parts else {}
            step.plain_bits = list(step.param_bits)
        for count, squares in squares_by_holders(self._torch, holders, norms).items():
            step.param_pieces.setdefault(count, []).extend(squares)
        if PLAIN in holders:
            step.plain_bits += bit_sums(self._torch, [part for count, part in zip(holders, parts) if count == PLAIN])

    def _add_state(self, step: OpenStep) -> None:
        """Add what else a step with checksums has: the share of weights that moved, and the hash of the generators."""
        if self._session.settings.has_moved(step.step_idx):
            with self._torch.no_grad():
                step.moved_parts, step.num_sampled = self._model.moved_parts()
        step.checks["rng_hash"] = hashes.rng_hash(self._torch)

    def _write_late_checksums(self, step: OpenStep) -> None:
        """Write the closed step's line again, with parameter checksums."""
        self._add_checksums(step, step.fires)
        if self._session.settings.has_moved(step.step_idx):
            with self._torch.no_grad():
                step.moved_parts, step.num_sampled = self._model.moved_parts()
        text = step.text(self._memory, self._plain, self._device)
        self._session.writer.write_line(f'{text}, "self_s": {step.self_s!r}, "late_checksums": true}}')
