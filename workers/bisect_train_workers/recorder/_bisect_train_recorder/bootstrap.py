"""Brings the parts of the recorder up, in order, at the start of the process.

Each part is guarded on its own: one that fails is recorded and the others still work.
"""

from __future__ import annotations

import atexit
import functools
from typing import Any

from . import VERSION
from .session import Session
from .settings import load_settings


def start_session(settings_path: str, channel: str) -> Session:
    """Open the record file of this process and install everything that needs no torch.

    Raises:
        Exception: no settings or no record file; afterwards nothing raises.
    """
    settings = load_settings(settings_path)
    if settings.can_die_with_parent:
        from .process_setup import die_with_parent

        die_with_parent()
    session = Session(settings, channel=channel, version=VERSION)
    for part in (_install_process_parts, _install_exit_parts, _install_import_parts):
        session.guarded(part)(session)
    return session


def _install_process_parts(session: Session) -> None:
    """Stack dumps on SIGUSR1, imports redirected to the checkout, and what stands in for modules that are missing."""
    from . import process_setup, redirect, stand_ins

    session.guarded(process_setup.register_stack_dump)(session.record_path("stacks-rank", ".txt"))
    settings = session.settings
    if settings.redirect_from and settings.root:
        session.guarded(redirect.redirect_imports)(settings.redirect_from, settings.root)
    if settings.stubs:
        session.guarded(stand_ins.install)(session)


def _install_exit_parts(session: Session) -> None:
    """Exceptions, exit code and the last lines of the file."""
    from . import failures, files_read, import_audit, outside_files

    watch = failures.FailureWatch(session)
    session.guarded(watch.install)()
    session.guarded(outside_files.install)(session)
    audits = [import_audit.record_imports, outside_files.record_outside_files, files_read.record_files_read]
    atexit.register(_finish, session, watch, [session.guarded(audit) for audit in audits])


def _finish(session: Session, watch: Any, audits: Any) -> None:
    """Write what is known only at the end; registered first, so it runs after the program's own."""
    if session.finish_steps is not None:
        session.guarded(session.finish_steps)()
    session.guarded(watch.record_unseen_exception)()
    for audit in audits:
        audit(session)
    session.guarded(session.event)("exit", exit="atexit", code=watch.exit_code())


def _install_import_parts(session: Session) -> None:
    """Seeds and torch hooks, each right after the program imports the module concerned."""
    from . import cuda_as_cpu, seed_shift, seed_start, step_function, untraced
    from .import_hook import ImportHook

    hook = ImportHook(session)
    # Loaded late (by torch itself), the program may have seeded these already: leave them alone.
    if session.channel != "torch.backends":
        hook.after("random", seed_start.seed_random)
        hook.after("numpy.random", seed_start.seed_numpy)
    hook.after("numpy", _record_numpy)
    if cuda_as_cpu.NAME in session.settings.shims:  # before whatever watches torch, so that this sees what the program does
        cuda_as_cpu.install(hook)
    hook.after("torch", functools.partial(_install_torch_parts, hook))
    if session.settings.step_function:
        session.step_function = step_function.StepFunction(session)
        session.step_function.install(hook)
    if session.settings.seed_shift:
        seed_shift.install(session, hook)
    hook.after("torch.distributed.checkpoint", _watch_distributed_checkpoint)
    for name in untraced.MODULES:
        hook.after(name, untraced.leave_out)
    hook.install()


def _record_numpy(session: Session, numpy: Any) -> None:
    """Event numpy_imported."""
    session.event("numpy_imported", version=getattr(numpy, "__version__", None))


def _install_torch_parts(hook: Any, session: Session, torch: Any) -> None:
    """Everything that needs torch; see torch_hooks."""
    from . import torch_hooks

    torch_hooks.install(session, torch, hook)


def _watch_distributed_checkpoint(session: Session, module: Any) -> None:
    """Saves and loads of sharded checkpoints."""
    from . import checkpoint_watch

    checkpoint_watch.watch_distributed(session, module)
