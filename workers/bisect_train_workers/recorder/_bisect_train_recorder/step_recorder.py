"""Decides when a step begins and ends, and writes its line.

One hook fire is not one step: several optimizers, one fire per parameter group, skipped steps. A
step closes at the first forward or backward after at least one fire. Its line is written
already when the last optimizer of the step has fired (marked provisional), so that a program that
ends with `os._exit` loses nothing, and again without the mark when the step closes. Readers take
the last line of a step.
"""

from __future__ import annotations

import time
from time import perf_counter
from typing import Any, Callable, List, Optional

from . import hashes
from .memory import MemoryMeter
from .open_step import OpenStep
from .readout import local_part, snapshot
from .tensor_sums import bit_sums, sums_of_squares


class StepRecorder:
    """Receives forwards, backwards and fires; owns the open step."""

    def __init__(self, session: Any, torch: Any) -> None:
        """Open step 0."""
        self._session = session
        self._torch = torch
        self._memory = MemoryMeter(torch)
        self._open = OpenStep(torch, 0)
        self._closed: Optional[OpenStep] = None
        self._prefix: Optional[str] = None
        self._num_expected_fires = 1
        self._previous_end: Optional[float] = None
        self._self_s = 0.0
        self._is_done = False
        self._is_written = False
        self.after_first_step: Optional[Callable[[Any], None]] = None
        session.step_idx = 0

    @property
    def open_step(self) -> OpenStep:
        """The step that is being collected."""
        return self._open

    def has_reached_limit(self) -> bool:
        """Tell whether as many steps as the settings ask for have closed."""
        return self._is_done

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the hook guarded, silent in forks, and its time counted as the recorder's own."""
        hook: Callable[..., Any] = self._session.guarded_hook(function, self._add_time)
        return hook

    def _add_time(self, duration_s: float) -> None:
        """Count time as the recorder's own in this step."""
        self._self_s += duration_s

    def begin_pass(self) -> None:
        """Close the step, if an optimizer has stepped: a forward or backward is about to run."""
        if self._open.fires:
            self._close()

    def add_loss(self, tensor: Any) -> None:
        """Add the loss of a micro-batch as it is now."""
        self._open.losses.append(snapshot(self._torch, tensor))

    def add_clip_norm(self, value: Any) -> None:
        """Add the norm that a clipping function measured."""
        self._open.clip_norms.append(snapshot(self._torch, value))

    def add_fire(self, fire: Any, *, is_skipped: bool) -> None:
        """Add an optimizer's step; write the line once as many fired as in the step before."""
        step = self._open
        step.fires.append(fire)
        step.num_real_fires += not is_skipped
        step.is_skipped = step.is_skipped or is_skipped
        step.ended_at, step.t = perf_counter(), time.time()
        step.step_s = None if self._previous_end is None else step.ended_at - self._previous_end
        self._prefix = None
        self._is_written = False
        if len(step.fires) >= self._num_expected_fires:
            self._write(is_provisional=True)

    def finish(self) -> None:
        """At exit: close the step, with the checksums that a program's last step has."""
        if self._open.fires:
            if not self._open.param_bits:
                self._add_checksums(self._open)
                self._prefix = None
            self._close()
        elif self._closed is not None and not self._closed.param_bits:
            # A later forward closed it; parameters are as they were, generators may not be.
            self._write_late_checksums(self._closed)

    def _close(self) -> None:
        """Write the final line and open the next step."""
        step = self._open
        self._write(is_provisional=False)
        self._num_expected_fires = len(step.fires)
        self._previous_end = step.ended_at
        self._self_s = 0.0
        self._closed = step
        self._open = OpenStep(self._torch, step.step_idx + 1)
        self._prefix = None
        num_steps = self._session.settings.num_steps
        self._is_done = num_steps is not None and self._open.step_idx >= num_steps
        if step.step_idx == 0 and self.after_first_step is not None:
            self.after_first_step(self._session)
        self._session.step_idx = self._open.step_idx

    def _write(self, *, is_provisional: bool) -> None:
        """Write the line of the open step; the text is built once if nothing was added since."""
        started = perf_counter()
        if self._prefix is None:
            self._prefix = self._build_prefix(self._open)
        self_s = self._open.self_s = self._self_s + perf_counter() - started
        writer = self._session.writer
        if is_provisional:
            writer.write_line(f'{self._prefix}, "self_s": {self_s!r}, "provisional": true}}')
        else:  # says nothing new where the line was written already: no system call of its own
            write = writer.queue_line if self._is_written else writer.write_line
            write(f'{self._prefix}, "self_s": {self_s!r}}}')
        self._is_written = True

    def _build_prefix(self, step: OpenStep) -> str:
        """Return the JSON of the step without its last keys and brace."""
        if not step.param_bits and self._session.settings.has_checksum(step.step_idx):
            self._add_checksums(step)
        record = {"type": "step", "step": step.step_idx, "step_s": step.step_s, "t": step.t}
        record.update(step.resolve())
        record["rss_mib"] = self._memory.rss_mib()
        record["cuda_mib"] = self._memory.cuda_mib()
        return f"{self._session.writer.encode(record)[:-1]}, {step.plain_text()}"

    def _add_checksums(self, step: OpenStep, *, has_rng: bool = True) -> None:
        """Add norm and hash of the parameters, and the hash of the generators."""
        params: List[Any] = []
        for fire in step.fires:
            params.extend(local_part(self._torch, param) for param in fire.parameters())
        with self._torch.no_grad():
            step.param_sq_parts = sums_of_squares(self._torch, params)
            step.param_bits = bit_sums(self._torch, params)
        if has_rng:
            step.checks["rng_hash"] = hashes.rng_hash(self._torch)

    def _write_late_checksums(self, step: OpenStep) -> None:
        """Write the closed step's line again, with parameter checksums."""
        self._add_checksums(step, has_rng=False)
        self._session.writer.write_line(f'{self._build_prefix(step)}, "self_s": {step.self_s!r}, "late_checksums": true}}')
