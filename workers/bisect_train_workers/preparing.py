"""From a clean checkout to a program that can be started: data, config, recorder, environment, command, setup.

A probe usually runs one program. One that asks about a restart runs three: each is a `Leg`, prepared from the same
`Workplace`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bisect_train.core.executor import ExecutorEvent, ProbeProgress
from bisect_train.core.probe import ProbeJob, ProbeSpec, Rung
from bisect_train_workers import command, environment, injection
from bisect_train_workers.data_links import CannotStartError, find_lfs_pointers, link_data
from bisect_train_workers.node import NodeHome, disk_errors
from bisect_train_workers.probe_run import PreparedProbe
from bisect_train_workers.program import Coordinator, Program, run_to_end
from bisect_train_workers.program_log import read_log
from bisect_train_workers.warm.client import find_warm_start


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all programs of one probe are prepared from.

    Attributes:
        job: with the settings and packages of its variant.
        folders: of the probe.
        lock_fds: locks that its supervisors hold.
        overlay: folder of packages that are laid before the inherited ones, or None.
        port: free TCP port of this node, or of the first of several.
        coordinator: whose end ends the probe, or None.
        recorder: folder of the recorder that is injected.
        home: of this node.
        share: this node's place among those of the probe.
    """

    job: ProbeJob
    folders: environment.ProbeFolders
    lock_fds: tuple[int, ...]
    overlay: Path | None
    port: int
    coordinator: Coordinator | None
    recorder: Path
    home: NodeHome
    share: command.Share


@dataclass(frozen=True, slots=True)
class Leg:
    """One of the programs of a probe, as far as it differs from what the job says.

    Attributes:
        steps: optimizer steps after which the recorder ends it; None lets it finish.
        command: with placeholders; () is the variant's own.
        ranks: processes, None for those of the job.
        is_launched: whether a single rank is put under torchrun too.
        recorder: further settings of the recorder.
    """

    steps: int | None
    command: tuple[str, ...] = ()
    ranks: int | None = None
    is_launched: bool = False
    recorder: Mapping[str, Any] = field(default_factory=dict)


def whole_run(job: ProbeJob) -> Leg:
    """Return the only leg of an ordinary probe; one that may be stopped early tells what it reads before each step."""
    return Leg(job.spec.rung.steps, recorder={"tell_reads": True} if job.early is not None else {})


def lay_out(place: Workplace) -> None:
    """Link the data into a clean checkout and make the output folder. Raises CannotStartError, NodeError."""
    with disk_errors(place.folders.base):
        link_data(place.folders.checkout, place.job.settings.links)
        place.folders.out.mkdir()


def make_program(place: Workplace, leg: Leg) -> PreparedProbe:
    """Write the config, inject the recorder and complete the command. Raises CommandError, NodeError."""
    job, folders = place.job, place.folders
    spec = _spec_of(job.spec, leg)
    with disk_errors(folders.base):
        config = _write_config(job, folders)
        recorded = dataclasses.replace(spec, rung=Rung(leg.steps, spec.rung.ranks))
        if command.has_placeholder(job.spec.variant.command, "seed"):  # then the program seeds itself, in every leg
            recorded = dataclasses.replace(recorded, seed_idx=0)
        injection.inject_recorder(recorded, job.settings, folders, source=place.recorder, more=leg.recorder)
    places = command.Places(job.settings.python, config, str(folders.out), place.port, place.share)
    program = Program(
        probe_id=job.id,
        argv=command.complete_command(spec, places, is_launched=leg.is_launched),
        cwd=folders.checkout,
        env=environment.program_environment(
            spec,
            job.settings,
            folders,
            port=place.port,
            base=os.environ,
            overlay=place.overlay,
            address=place.share.address if place.share.nodes > 1 else "",
        ),
        log=folders.log,
        records=folders.records,
        timeout_s=job.settings.timeout_s,
        coordinator=place.coordinator,
        lock_fds=place.lock_fds,
    )
    if job.settings.warm and place.overlay is None and place.share.nodes == 1:
        warm = find_warm_start(
            program,
            python=job.settings.python,
            gpus=job.settings.gpus,
            recorder=folders.recorder,
            home=place.home,
            is_fresh=job.is_fresh,
            ahead=_hash_seeds_ahead(job, program),
        )
        program = dataclasses.replace(program, warm=warm)
    job = dataclasses.replace(job, spec=spec)
    return PreparedProbe(job, program, folders, places, leg.steps, find_lfs_pointers(folders.checkout))


def _hash_seeds_ahead(job: ProbeJob, program: Program) -> list[str]:
    """Return the hash seeds of the runs that come soon, none where the variant says its own."""
    if program.env["PYTHONHASHSEED"] != environment.hash_seed(job.spec.seed_idx):
        return []
    return [environment.hash_seed(seed_idx) for seed_idx in job.seeds_ahead]


def _spec_of(spec: ProbeSpec, leg: Leg) -> ProbeSpec:
    """Return the job's spec with the leg's command and ranks; `{steps}` stays what it is for the whole run."""
    variant = spec.variant
    own = command.insert_command(leg.command, variant.command) or variant.command
    if own == variant.command and leg.ranks is None:
        return spec
    changed = dataclasses.replace(variant, command=own, ranks=leg.ranks if leg.ranks is not None else variant.ranks)
    return dataclasses.replace(spec, variant=changed)


def _write_config(job: ProbeJob, folders: environment.ProbeFolders) -> str:
    """Return what `{config}` stands for, after writing the variant's own config file if it brings one."""
    config = job.spec.variant.config
    if config is None:
        return job.spec.variant.config_path
    path = folders.base / "config" / Path(config.name).name
    path.parent.mkdir(exist_ok=True)
    path.write_text(config.text, encoding="utf-8")
    return str(path)


def run_setup(probe: PreparedProbe) -> Generator[ExecutorEvent, None, None]:
    """Run the setup commands in order. Raises CannotStartError."""
    job = probe.job
    if job.settings.setup:
        yield ProbeProgress(job.id, "setup")
    env = environment.without_recorder(probe.program.env, probe.folders)
    for idx, arguments in enumerate(job.settings.setup):
        filled = command.fill_placeholders(arguments, job.spec, probe.places)
        argv = command.use_python(filled, job.settings.python)
        log = probe.folders.base / f"setup-{idx}.log"
        outcome = run_to_end(dataclasses.replace(probe.program, argv=argv, env=env, log=log))
        if outcome.start_error or outcome.status != 0:
            how = outcome.start_error or ("time limit" if outcome.status is None else f"exit status {outcome.status}")
            said = read_log(log).strip()[-1000:]
            raise CannotStartError(f"the setup command `{' '.join(arguments)}` failed ({how}): {said}")
