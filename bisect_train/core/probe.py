"""A probe: one shrunk run of one variant. Its identity, and the job that a worker gets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bisect_train.core.changes import DataLink, Variant, digest_of
from bisect_train.core.fingerprint import Fingerprint

RECORDER_VERSION = "4"


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the shrink ladder.

    Attributes:
        steps: optimizer steps after which the probe is stopped; None lets the program finish.
        ranks: processes of one probe.
        overrides: arguments that this rung alone adds where `{overrides}` stands, such as the accumulation that keeps the batch.
    """

    steps: int | None
    ranks: int = 1
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Short text for tables, `20 steps x 1 rank`."""
        steps = "end" if self.steps is None else f"{self.steps} steps"
        return f"{steps} x {self.ranks} rank{'s' if self.ranks != 1 else ''}"


@dataclass(frozen=True, slots=True)
class MetricPattern:
    """A metric that is read from the program's log.

    Attributes:
        name: of the metric.
        pattern: regular expression; its group `value`, else its first group, is the number; a group `step` is the step.
    """

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """How a variant's packages are made available.

    Attributes:
        mode: overlay (only the differing packages, before the inherited environment) or uv (a whole environment).
        find_links: folders and pages in which packages are looked for, besides the index.
        index: address of the package index; "" is the installer's own default, "none" is no index at all.
        digest: of what the folders held when the question was asked, "" without any.
        files: requirement files in the repository: each commit runs with the packages that its own name.
        installed: `name==version` of what the interpreter has; only asked for where there are files.
    """

    mode: str = "overlay"
    find_links: tuple[str, ...] = ()
    index: str = ""
    digest: str = ""
    files: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """How a run is interrupted and goes on, for questions about restarts.

    Attributes:
        save_at: 0-based step after which (and after the save that the program then makes, if any) all ranks are killed.
        command: goes on in the same checkout and output folder, with the recipe's placeholders; an argument `{command}` in it
            stands for all of the variant's own command.
        ranks: processes of the resumed run; None for as many as before.
        kill: whether the ranks are killed (SIGKILL); otherwise the recorder ends them as it ends every probe.
    """

    save_at: int
    command: tuple[str, ...]
    ranks: int | None = None
    kill: bool = True


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How probes of one bisection are run; the same for all its variants.

    Attributes:
        python: absolute path of the interpreter that `python` in the command stands for.
        links: untracked data.
        setup: commands run in the checkout before the program, as argument lists.
        patterns: metrics read from the log.
        judge: judging command, run in the checkout after the program, or ().
        timeout_s: time limit of the program, seconds.
        cpus, gpus: resources of one probe.
        threads: OMP/torch threads of each rank.
        redirect_from: the user's repository; editable installs that point into it are redirected to the checkout.
        exempt_seeds: seeds that are never shifted.
        deterministic: whether torch's deterministic algorithms are asked for.
        every_step: parameter and RNG hashes at every step.
        needs_recorder: whether the criterion needs the recorder (else a log pattern, a judge or a symptom decides).
        private: environment variables whose folders become private to each probe, by name.
        keep: whether a probe's checkout and output stay on the node for a person to look at.
        environment: how packages that a variant brings with it are made available.
        triage: whether the recorder also takes what only triage needs: hashes of samples, collective calls, waits for data.
        anomaly: whether torch looks for the operation that first gave a NaN (slow).
        debug_env: environment variables of a second run that looks closer, such as TORCH_DISTRIBUTED_DEBUG.
        restart: how the run is killed and resumed, None for an ordinary run.
        warm: whether programs may be forked from a process that has imported torch already; the numbers are the same.
    """

    python: str
    links: tuple[DataLink, ...] = ()
    setup: tuple[tuple[str, ...], ...] = ()
    patterns: tuple[MetricPattern, ...] = ()
    judge: tuple[str, ...] = ()
    timeout_s: float = 600.0
    cpus: float = 1.0
    gpus: float = 0.0
    threads: int = 1
    redirect_from: str = ""
    exempt_seeds: tuple[int, ...] = ()
    deterministic: bool = False
    every_step: bool = False
    needs_recorder: bool = True
    private: tuple[str, ...] = ()
    keep: bool = False
    environment: EnvironmentSettings = EnvironmentSettings()
    triage: bool = False
    anomaly: bool = False
    debug_env: tuple[tuple[str, str], ...] = ()
    restart: RestartSettings | None = None
    warm: bool = False

    @property
    def measure_digest(self) -> str:
        """Digest of what changes a probe's record: metrics, judge, threads, seeds, determinism, setup, closer looks."""
        patterns = [[item.name, item.pattern] for item in self.patterns]
        asked = [patterns, self.judge, self.threads, self.exempt_seeds, self.deterministic, self.every_step, self.setup]
        restart = self.restart and [self.restart.save_at, self.restart.command, self.restart.ranks, self.restart.kill]
        closer = [self.triage, self.anomaly, self.debug_env, restart]
        return digest_of([*asked, *closer] if any(closer) else asked)


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What a probe's numbers depend on besides its variant.

    Attributes:
        hardware_class: CPU model, vector level and accelerator, as text; probes compare only within one class.
        interpreter: python and torch version and a digest of the installed distributions.
        slots: probes of the asked size that run at the same time.
    """

    hardware_class: str
    interpreter: str
    slots: int


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """What is run: one variant on one rung with one seed index; `repeat` counts fresh runs of the same thing."""

    variant: Variant
    rung: Rung
    seed_idx: int = 0
    repeat: int = 0

    @property
    def ranks(self) -> int:
        """Processes of this probe."""
        return self.variant.ranks or self.rung.ranks


def probe_key(spec: ProbeSpec, *, settings: RunSettings, facts: MachineFacts, scope: str = "") -> str:
    """Return the identity of a probe, 16 hex digits.

    Args:
        spec: variant, rung, seed index, repeat.
        settings: only what changes the record counts.
        facts: hardware class and interpreter.
        scope: "" for results that any bisection may reuse; a bisection's id for those that must be fresh in it.
    """
    # packages of equal names and versions may come from elsewhere
    origin = [settings.environment.mode, settings.environment.digest] if spec.variant.packages else []
    return digest_of(
        [
            spec.variant.id,
            spec.rung.steps,
            spec.rung.ranks,
            spec.seed_idx,
            spec.repeat,
            settings.measure_digest,
            facts.hardware_class,
            facts.interpreter,
            RECORDER_VERSION,
            scope,
            *origin,
        ]
    )


@dataclass(frozen=True, slots=True)
class Pack:
    """Git objects that a worker needs, as one pack; `id` is the digest of its content."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """All that a worker needs to run one probe; it opens no path of the coordinator but the data links.

    Attributes:
        id: identity of the probe (`probe_key`).
        repo: key of the repository, names the worker's own mirror.
        packs: git objects of the variant's trees.
        is_fresh: whether the program must be started as a fresh process, whatever the settings allow.
    """

    id: str
    spec: ProbeSpec
    settings: RunSettings
    repo: str
    packs: tuple[Pack, ...] = ()
    is_fresh: bool = False

    def with_own_settings(self) -> ProbeJob:
        """Return the job with settings that have the interpreter and the data of its variant."""
        variant = self.spec.variant
        own = {link.target for link in variant.links}
        links = (*(link for link in self.settings.links if link.target not in own), *variant.links)
        return replace(self, settings=replace(self.settings, python=variant.python or self.settings.python, links=links))


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What came back from a worker.

    Attributes:
        job_id: of the job.
        fingerprint: what was recorded.
        wall_s: time of the whole probe on the worker, seconds.
        log_tail: last 16,000 characters of the program's output.
        stacks: (name, text) of dumped stacks.
        warnings: things that a reader of the report should know.
        node: where it ran.
        kept: folder on that node where its checkout and output stay, or "".
        is_warm: whether the program was forked from a process that had imported torch.
    """

    job_id: str
    fingerprint: Fingerprint
    wall_s: float = 0.0
    log_tail: str = ""
    stacks: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    node: str = ""
    kept: str = ""
    is_warm: bool = False
