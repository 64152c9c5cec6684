"""A probe: one shrunk run of one variant. Its identity, and the job that a worker gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bisect_train.core.changes import DataLink, Variant, digest_of
from bisect_train.core.early import EarlyRules
from bisect_train.core.fingerprint import Fingerprint

RECORDER_VERSION = "5"
SHIMS = ("cuda-as-cpu",)
"""Stand-ins for hardware that a recipe can ask for."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the shrink ladder.

    Attributes:
        steps: optimizer steps after which the probe is stopped; None lets the program finish.
        ranks: processes of one probe.
        overrides: arguments that scale the run on this rung, where `{overrides}` stands; the same in every variant.
    """

    steps: int | None
    ranks: int = 1
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Short text for tables, `20 steps x 1 rank`."""
        steps = "end" if self.steps is None else f"{self.steps} steps"
        return f"{steps} x {self.ranks} rank{'s' if self.ranks != 1 else ''}"


METRIC_SOURCES = ("log", "tensorboard", "csv", "jsonl", "json", "wandb", "mlflow")
"""Where a metric can be read, besides the recorder."""


@dataclass(frozen=True, slots=True)
class MetricPattern:
    """A metric that is read from what the program prints, or from files that it writes.

    Attributes:
        name: of the metric.
        pattern: regular expression of `log`; its group `value`, else its first group, is the number; a group `step` the step.
        others: expressions of `log` that are tried in turn where no line matches `pattern`.
        source: one of METRIC_SOURCES.
        key: of the other sources: tag, column or dotted key.
        step_key: column or dotted key of the step; "" takes the usual names.
        files: globs of the files, in the checkout and in `{out}`, or in the latter alone where they begin with `{out}/`; ()
            takes the usual ones of the source.
    """

    name: str
    pattern: str = ""
    others: tuple[str, ...] = ()
    source: str = "log"
    key: str = ""
    step_key: str = ""
    files: tuple[str, ...] = ()

    @property
    def identity(self) -> list[object]:
        """What distinguishes it from other metrics, for digests; of a plain pattern only that."""
        if self == MetricPattern(self.name, self.pattern):
            return [self.name, self.pattern]
        return [self.name, self.pattern, self.others, self.source, self.key, self.step_key, self.files]


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
        patterns: metrics read from the log, or from files that the program writes.
        judge: judging command, run in the checkout after the program, or ().
        timeout_s: time limit of the program, seconds.
        cpus, gpus: resources of one probe, or of its share of one node where its ranks are spread over several.
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
        profile: whether torch's profiler runs over some of the steps (it slows them).
        stubs: modules that an inert stand-in takes the place of where they are not installed.
        shims: names of what stands in for hardware (`SHIMS`); it changes what is tested.
        step_function: `package.module:Class.method` or `:function` whose calls are the steps; "" leaves it to torch's hooks.
        memory: of a node that one probe takes, bytes; 0 asks for none. It says where a probe runs, and limits nothing.
        custom: (name, amount) of a cluster's own resources that one probe takes.
        accelerator: the kind on which it must run, as Ray calls it; "" for any.
        ranks_per_node: ranks of a probe that run on one node at most; more are spread evenly over several. 0 for all on one.
        nodes: that a probe with the question's ranks takes.
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
    profile: bool = False
    stubs: tuple[str, ...] = ()
    shims: tuple[str, ...] = ()
    step_function: str = ""
    memory: int = 0
    custom: tuple[tuple[str, float], ...] = ()
    accelerator: str = ""
    ranks_per_node: int = 0
    nodes: int = 1

    @property
    def measure_digest(self) -> str:
        """Digest of what changes a probe's record: metrics, judge, threads, seeds, determinism, setup, closer looks."""
        patterns = [item.identity for item in self.patterns]
        asked = [patterns, self.judge, self.threads, self.exempt_seeds, self.deterministic, self.every_step, self.setup]
        restart = self.restart and [self.restart.save_at, self.restart.command, self.restart.ranks, self.restart.kill]
        closer = [self.triage, self.anomaly, self.debug_env, restart, *(["profile"] if self.profile else [])]
        stand_ins: list[object] = [["stand-ins", self.stubs, self.shims]] if self.stubs or self.shims else []
        if self.step_function:
            stand_ins.append(["step function", self.step_function])
        if self.ranks_per_node:
            stand_ins.append(["ranks per node", self.ranks_per_node])
        return digest_of([*asked, *closer, *stand_ins] if any(closer) or stand_ins else asked)


def local_ranks(ranks: int, ranks_per_node: int) -> int:
    """Return how many ranks of a probe run on each of its nodes; 0 ranks per node puts all on one."""
    return min(ranks, ranks_per_node) if ranks_per_node else ranks


def num_nodes(ranks: int, ranks_per_node: int) -> int:
    """Return how many nodes a probe takes."""
    return -(-ranks // local_ranks(ranks, ranks_per_node))


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What a probe's numbers depend on besides its variant.

    Attributes:
        hardware_class: CPU model, vector level and accelerator, as text; probes compare only within one class.
        interpreter: python and torch version and a digest of the installed distributions.
        slots: probes of the asked size that run at the same time.
        nodes: names of the nodes on which they run, those of `ProbeResult.node`; () where it is one machine.
        notes: what a reader of the report should know of the cluster, such as nodes that are left out.
    """

    hardware_class: str
    interpreter: str
    slots: int
    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


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


def probe_key(
    spec: ProbeSpec, *, settings: RunSettings, facts: MachineFacts, scope: str = "", recorder: str = RECORDER_VERSION
) -> str:
    """Return the identity of a probe, 16 hex digits.

    Args:
        spec: variant, rung, seed index, repeat.
        settings: only what changes the record counts.
        facts: hardware class and interpreter.
        scope: "" for results that any bisection may reuse; a bisection's id for those that must be fresh in it.
        recorder: version of the recorder; others than the current one only to tell what an old result is.
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
            recorder,
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
        reference: run right before or after it on the same worker, where costs are compared by pairs; else None.
        early: when it may be stopped before its last step; None runs it to its end.
        seeds_ahead: seed indices of runs that come soon: what takes time before they can start may be begun.
        avoid: names of nodes on which it must not run as long as there is another one.
    """

    id: str
    spec: ProbeSpec
    settings: RunSettings
    repo: str
    packs: tuple[Pack, ...] = ()
    is_fresh: bool = False
    reference: ProbeSpec | None = None
    early: EarlyRules | None = None
    seeds_ahead: tuple[int, ...] = ()
    avoid: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes it takes, with the run beside it, which comes before or after it."""
        specs = (self.spec, self.reference) if self.reference is not None else (self.spec,)
        return max(num_nodes(spec.ranks, self.settings.ranks_per_node) for spec in specs)

    def with_own_settings(self) -> ProbeJob:
        """Return the job with settings that have the interpreter, the data and the patterns of its variant."""
        variant = self.spec.variant
        own = {link.target for link in variant.links}
        links = (*(link for link in self.settings.links if link.target not in own), *variant.links)
        patterns = dict(variant.patterns)
        settings = replace(
            self.settings,
            python=variant.python or self.settings.python,
            links=links,
            patterns=tuple(
                replace(item, pattern=patterns[item.name], others=()) if item.name in patterns else item
                for item in self.settings.patterns
            ),
        )
        return replace(self, settings=settings)


_BETWEEN_NODES = " + "


def join_nodes(names: Iterable[str]) -> str:
    """Return the name of the nodes that one probe ran on together, whichever of them was the first."""
    return _BETWEEN_NODES.join(sorted(names))


def split_nodes(name: str) -> list[str]:
    """Return the names that `join_nodes` put together."""
    return name.split(_BETWEEN_NODES)


def share_a_node(name: str, names: Iterable[str]) -> bool:
    """Return whether a name, of one node or of several, has a node in common with any of others."""
    own = set(split_nodes(name))
    return any(own & set(split_nodes(other)) for other in names)


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
        node: where it ran; of several nodes all names, see `join_nodes`.
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
