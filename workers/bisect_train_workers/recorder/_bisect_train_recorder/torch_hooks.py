"""Connects the recorder to torch, right after the program has imported it."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any, Callable, Optional

from . import loss_watch, seed_start, traced
from .checkpoint_watch import CheckpointWatch
from .clip_watch import ClipWatch
from .collective_watch import replace_in_torch, watch_collectives, watch_point_to_point
from .files_read import ReadTeller, record_files_read
from .first_batch import describe_first_batch, is_capturing
from .import_audit import record_imports
from .inputs import first_values, tensor_inputs
from .model_watch import ModelWatch
from .optimizer_watch import OptimizerWatch
from .outside_files import record_outside_files
from .pipeline_watch import PipelineWatch
from .root_module import RootFinder, is_compiling_function, is_training_call
from .step_recorder import StepRecorder
from .stop import Stopper
from .unseen_steps import UnseenSteps

NUM_STEP_VALUES = 32


def install(session: Any, torch: Any, imports: Any) -> None:
    """Seed torch, set determinism if asked for, and install every hook; `imports` is the import hook."""
    session.guarded(seed_start.seed_torch)(session, torch)
    if session.settings.is_deterministic:
        session.guarded(_set_deterministic)(torch)
    if session.settings.is_anomaly_asked:
        session.guarded(torch.autograd.set_detect_anomaly)(True)
    session.guarded(_record_torch)(session, torch)
    session.guarded(CheckpointWatch(session).install)(torch)
    session.guarded(_watch_process_group)(session, torch)
    TorchHooks(session, torch).install(imports)


def _set_deterministic(torch: Any) -> None:
    """Prefer deterministic kernels; uninitialised memory stays as it is, filling it hides bugs."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    deterministic = getattr(torch.utils, "deterministic", None)  # torch >= 2.2
    if deterministic is not None:
        deterministic.fill_uninitialized_memory = False


def _record_files(session: Any) -> None:
    """Events imports and outside_files: at the first step and before a hard exit, else exit handlers write them."""
    record_imports(session)
    record_outside_files(session)


def _record_torch(session: Any, torch: Any) -> None:
    """Event torch_imported."""
    session.event(
        "torch_imported",
        version=str(torch.__version__),
        threads=torch.get_num_threads(),
        cuda=torch.version.cuda,
        deterministic=session.settings.is_deterministic,
    )


def _watch_process_group(session: Any, torch: Any) -> None:
    """Events process_group_begin, and process_group once the default group exists."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    original = distributed.init_process_group

    def record() -> None:
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
        session.event("process_group", backend=distributed.get_backend(), world_size=world_size, rank=rank)

    def record_begin(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        asked = {name: kwargs.get(name, os.environ.get(name.upper())) for name in ("rank", "world_size")}
        known = {name: int(value) for name, value in asked.items() if str(value).isdigit()}  # spawned ranks say them here
        session.event("process_group_begin", backend=None if backend is None else str(backend), **known)

    record, record_begin = session.guarded(record), session.guarded(record_begin)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        record_begin(*args, **kwargs)
        result = original(*args, **kwargs)
        record()
        return result

    replace_in_torch("init_process_group", original, init_process_group)


class TorchHooks:
    """The hooks of one process and what they report to."""

    def __init__(self, session: Any, torch: Any) -> None:
        """Create the parts; `install` makes torch call them."""
        self._session = session
        self._torch = torch
        self._model = ModelWatch(session, torch)
        self._steps = StepRecorder(session, torch, self._model)
        self._steps.after_first_step = session.guarded(_record_files)
        self._stopper = Stopper(session, self._finish_hard)
        self._optimizers = OptimizerWatch(torch, self._steps)
        self._unseen = UnseenSteps(session, torch, self._steps, self._optimizers, self._model)
        self._backward = loss_watch.BackwardWatch(self._steps.timed(self._on_backward))
        self._pipeline = PipelineWatch(torch, self._steps.timed(self._steps.add_loss))
        self._is_compiling = is_compiling_function(torch)
        self._has_batch = False
        self._has_forward = False  # whether the root ran outside of backward passes, with gradients
        self._get_autocast = autocast_reader(torch)

    def install(self, imports: Any) -> None:
        """Install each hook; one that fails leaves the others working."""
        guarded, timed, torch = self._session.guarded, self._steps.timed, self._torch
        self._session.finish_steps = timed(self._finish)
        self._session.param_hash = self._model.param_hash
        guarded(self._install_optimizer_hooks)()
        guarded(self._backward.install)(torch)
        guarded(loss_watch.watch_scaler)(torch, self._optimizers, timed)
        guarded(self._install_clipping)(imports)
        guarded(self._unseen.install_clearing)(timed, self._is_compiling)
        guarded(RootFinder(torch, timed(self._on_forward), guarded).install)()
        for name in loss_watch.OTHER_SCALERS:
            imports.now_or_after(name, lambda _, module: loss_watch.watch_other_scaler(torch, module, timed))
        imports.now_or_after("torch.distributed.pipelining.schedules", self._pipeline.install)
        if self._session.step_function is not None:
            self._session.step_function.tell(timed(self._unseen.begin_function), timed(self._unseen.end_function))
        if self._session.has_triage:
            guarded(self._steps.wait.install)()
            guarded(self._watch_collectives)()

    def _install_clipping(self, imports: Any) -> None:
        """Watch torch's functions that clip, and FSDP's method."""
        watch = ClipWatch(self._steps.timed(self._steps.add_clip_norm), self._is_compiling)
        watch.install(self._torch)
        imports.now_or_after("torch.distributed.fsdp.fully_sharded_data_parallel", watch.install_sharded)

    def _finish(self) -> None:
        """At exit: the last step."""
        self._unseen.finish()
        self._steps.finish()

    def _watch_collectives(self) -> None:
        """Note the collective calls that the program makes, where this torch has any."""
        distributed = self._torch.distributed
        if distributed.is_available():
            timed, log, is_compiling = self._steps.timed, self._steps.collectives, self._is_compiling
            watch_collectives(distributed, timed(log.note), is_compiling)
            watch_point_to_point(distributed, timed(log.note_point_to_point), is_compiling)

    def _install_optimizer_hooks(self) -> None:
        """Register torch's official global optimizer hooks (the name torch.optim.optimizer is deleted)."""
        module = importlib.import_module("torch.optim.optimizer")
        timed, is_compiling = self._steps.timed, self._is_compiling
        if self._session.settings.tells_reads:  # the first, so that it is told before the step's line is there
            tell = timed(ReadTeller(self._session).before_step)
            module.register_optimizer_step_pre_hook(traced.hook_before(is_compiling, tell))
        before, after = timed(self._optimizers.before_step), timed(self._optimizers.after_step)
        module.register_optimizer_step_pre_hook(traced.hook_before(is_compiling, before))
        module.register_optimizer_step_post_hook(traced.hook_after(is_compiling, after, self._unseen.mark))

    def _on_forward(self, module: Any, args: Any, kwargs: Any) -> None:
        """The root module is about to run; after the last step this raises SystemExit."""
        is_training = module.training and self._torch.is_grad_enabled()
        if self._backward.is_running:  # the root itself is checkpointed, and runs once more
            if is_training and not self._has_forward:  # the first time was without gradients: reentrant checkpointing
                self._record_batch(module, args, kwargs)
            return
        self._has_forward = self._has_forward or is_training
        self._unseen.before_pass()
        if self._steps.begin_pass() and (is_training or not self._session.settings.is_saving):
            self._stopper.stop("forward")
        if is_training:
            self._record_batch(module, args, kwargs)

    def _on_backward(self, tensors: Any, grad_tensors: Any) -> None:
        """A backward pass is about to run; after the last step this raises SystemExit."""
        self._unseen.before_pass()
        if self._steps.begin_pass():
            self._stopper.stop("backward")
        self._unseen.note_backward()
        if not self._pipeline.is_running:
            for loss in loss_watch.loss_roots(self._torch, tensors, grad_tensors):
                self._steps.add_loss(loss)

    def _record_batch(self, module: Any, args: Any, kwargs: Any) -> None:
        """Hash the inputs of a training forward."""
        if self._pipeline.is_preparing:
            return
        if not self._has_batch and is_training_call(self._torch, module):
            self._has_batch = True
            self._begin(module, args, kwargs)
        step = self._steps.open_step
        step.autocast = self._get_autocast()
        if self._session.settings.is_every_step and step.batch.is_empty:
            self._keep_values(step, args, kwargs)
        step.batch.add(args, kwargs)
        if step.triage is not None:
            step.triage.samples.add(args, kwargs)

    def _begin(self, module: Any, args: Any, kwargs: Any) -> None:
        """At the first training forward: what went in, and the parameters before any update."""
        guarded = self._session.guarded
        guarded(describe_first_batch)(self._session, self._torch, module, args, kwargs)
        if not is_capturing(self._torch):
            guarded(self._model.begin)(module)

    def _keep_values(self, step: Any, args: Any, kwargs: Any) -> None:
        """Keep the first values of the step's first micro-batch, where they lie."""
        for key, tensor in tensor_inputs(self._torch, args, kwargs):
            values = first_values(self._torch, tensor, NUM_STEP_VALUES)
            if values is not None:
                step.value_keys.append(key)
                step.values.append(values)

    def _finish_hard(self) -> None:
        """Before os._exit: what exit handlers would have written."""
        self._finish()
        _record_files(self._session)
        record_files_read(self._session)


def autocast_reader(torch: Any) -> Callable[[], Optional[str]]:
    """Return a function that gives e.g. "cpu:bfloat16" while autocast is on, else None.

    Devices are joined by commas. torch 2.4 replaced one function per device by an argument.
    """
    kinds = ["cpu"] if torch.version.cuda is None and getattr(torch.version, "hip", None) is None else ["cuda", "cpu"]
    if hasattr(torch, "get_autocast_dtype"):
        is_enabled, get_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    else:
        old_is_enabled = {"cuda": torch.is_autocast_enabled, "cpu": torch.is_autocast_cpu_enabled}
        old_dtype = {"cuda": torch.get_autocast_gpu_dtype, "cpu": torch.get_autocast_cpu_dtype}
        is_enabled, get_dtype = (lambda kind: old_is_enabled[kind]()), (lambda kind: old_dtype[kind]())

    def read() -> Optional[str]:
        if not any(map(is_enabled, kinds)):
            return None
        names = [f"{kind}:{str(get_dtype(kind)).rsplit('.', 1)[-1]}" for kind in kinds if is_enabled(kind)]
        return ",".join(names)

    return read
