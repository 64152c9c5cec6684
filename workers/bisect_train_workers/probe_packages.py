"""The packages of one probe: what its variant brings is laid over, or becomes an environment of its own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.probe import EnvironmentSettings, ProbeJob, ProbeResult
from bisect_train_workers.installed import find_inherited
from bisect_train_workers.node import NodeHome
from bisect_train_workers.overlay import PackageRequest, hold_overlay
from bisect_train_workers.whole_environment import hold_environment

FACT = "environment"
"""Name of the fact in a fingerprint that says with which packages the probe ran."""


@dataclass(frozen=True, slots=True)
class ProbePackages:
    """What a probe runs with, besides its checkout.

    Attributes:
        job: the probe's job; its settings name the interpreter that is really used.
        overlay: folder for the program's path, or None.
        digest: of the environment, or "" where nothing is said about packages: the interpreter's own is known.
        warnings: things that a reader of the report should know.
        lock_fds: of what must not be removed while the probe runs.
    """

    job: ProbeJob
    overlay: Path | None = None
    digest: str = ""
    warnings: tuple[str, ...] = ()
    lock_fds: tuple[int, ...] = ()


@contextlib.contextmanager
def hold_packages(home: NodeHome, job: ProbeJob, checkout: Path) -> Iterator[ProbePackages]:
    """Yield the packages of a probe; they stay while they are held.

    Raises:
        CannotStartError: they cannot be installed, or do not go together.
        NodeError: the disk is full or cannot be written.
    """
    settings = job.settings.environment
    wanted = tuple(_in_checkout(text, checkout) for text in job.spec.variant.packages)
    request = PackageRequest(job.settings.python, wanted, settings.find_links, settings.index)
    if not wanted:
        is_silent = settings == EnvironmentSettings()
        yield ProbePackages(job, digest="" if is_silent else find_inherited(request.python).identity)
    elif settings.mode == "uv":
        with hold_environment(home, request) as whole:
            own = dataclasses.replace(job.settings, python=whole.python)
            yield ProbePackages(dataclasses.replace(job, settings=own), digest=whole.digest, lock_fds=(whole.lock_fd,))
    else:
        with hold_overlay(home, request) as overlay:
            yield ProbePackages(job, overlay.path, overlay.digest, overlay.warnings, (overlay.lock_fd,))


def with_environment(result: ProbeResult, packages: ProbePackages) -> ProbeResult:
    """Return a result that also says with which packages the program ran."""
    if not packages.digest:
        return result
    facts = dict(result.fingerprint.facts) | {FACT: packages.digest}
    fingerprint = dataclasses.replace(result.fingerprint, facts=tuple(sorted(facts.items())))
    return dataclasses.replace(result, fingerprint=fingerprint, warnings=(*packages.warnings, *result.warnings))


def _in_checkout(requirement: str, checkout: Path) -> str:
    """Return a requirement whose file lies in the repository (`x @ ./wheels/x.whl`) with its place in the checkout."""
    name, marker, path = requirement.partition(" @ ./")
    return f"{name} @ {(checkout / path).as_uri()}" if marker else requirement
