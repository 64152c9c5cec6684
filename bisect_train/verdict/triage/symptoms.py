"""The table of all symptoms: category, stage, what it is, what to look at first. Its order is that of the findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bisect_train.verdict.divergence import Stage
from bisect_train.verdict.triage.finding import Category, Evidence, Finding

CHOSEN = "chosen, not measured"


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a name means.

    Attributes:
        category: see Category; a run that never stepped has it as WONT_START.
        stage: of training that it points to, unless the finding says a nearer one.
        description: one line.
        look_at: what to look at first, unless the finding says something nearer.
    """

    category: Category
    stage: Stage
    description: str
    look_at: str


def _rows(category: Category, *rows: tuple[str, Stage, str, str]) -> dict[str, Symptom]:
    return {name: Symptom(category, stage, description, look_at) for name, stage, description, look_at in rows}


_START = _rows(
    Category.WONT_START,
    (
        "imported_from_outside",
        Stage.ENVIRONMENT,
        "a tracked module was imported from a place outside the checkout",
        "the path of the module: uninstall that copy, or install the repository as editable",
    ),
    (
        "environment_mismatch",
        Stage.ENVIRONMENT,
        "versions, driver or compiled parts do not fit each other, or are not those of the baseline",
        "the versions that differ, then the driver",
    ),
    (
        "no_resources",
        Stage.ENVIRONMENT,
        "the machine does not have what was asked for",
        "the devices that were asked for against those that are there",
    ),
    (
        "import_error",
        Stage.ENVIRONMENT,
        "a module or a name in it cannot be imported",
        "the import that fails: is it renamed, or its package not installed?",
    ),
    (
        "config_error",
        Stage.ENVIRONMENT,
        "the command, a config key or its value is not accepted",
        "the key or the argument in the message, in the commit that last changed how it is read",
    ),
    (
        "checkpoint_does_not_fit",
        Stage.INITIAL_PARAMETERS,
        "a checkpoint lacks parameters, has unexpected ones, or other shapes",
        "the names of the parameters, and the parallel layout that wrote the checkpoint",
    ),
    (
        "missing_rank",
        Stage.ENVIRONMENT,
        "fewer ranks started than the program waits for",
        "the launcher's output of the rank that is missing",
    ),
    (
        "hang_in_init",
        Stage.ENVIRONMENT,
        "ranks wait in the initialisation of the process group",
        "the rank that never enters it, then address and port",
    ),
    (
        "hang_in_first_collective",
        Stage.INITIAL_PARAMETERS,
        "ranks wait in the first collective, before any step",
        "the stacks: which rank waits in which call, and which does not",
    ),
)

_STOPPED = _rows(
    Category.STOPPED,
    ("rank_died", Stage.ENDING, "one rank ended while others went on", "the output of that rank, then memory of its node"),
    ("out_of_memory", Stage.TIME_AND_MEMORY, "an allocation failed", "the allocation and the step: what is larger there?"),
    (
        "hang_at_end",
        Stage.ENDING,
        "all steps are done, and the program does not end",
        "the last barrier or save: is it entered by all?",
    ),
    ("hang", Stage.ENDING, "no rank makes a step any more", "the stacks: which rank waits in which call, and which does not"),
    ("killed", Stage.ENDING, "a signal from outside ended it", "memory and limits of the node"),
    (
        "crash",
        Stage.ENDING,
        "an exception or an exit status other than 0",
        "the innermost function of the repository in its traceback",
    ),
    (
        "slow_not_hung",
        Stage.TIME_AND_MEMORY,
        "the time limit came while it still made progress",
        "the time of a step, or a longer limit",
    ),
)

_CONVERGE = _rows(
    Category.WONT_CONVERGE,
    (
        "nan_loss",
        Stage.FORWARD,
        "the loss is not finite",
        "the operation that anomaly detection names, and the batch of that step",
    ),
    ("nan_gradient", Stage.GRADIENT, "a gradient is not finite", "the operation that anomaly detection names"),
    (
        "nan_parameter",
        Stage.UPDATED_PARAMETERS,
        "a parameter is not finite",
        "the optimizer's state and the learning rate of that step",
    ),
    ("lr_stalls", Stage.LEARNING_RATE, "the learning rate stays where it should move, or at 0", "the call of the scheduler"),
    ("lr_jumps", Stage.LEARNING_RATE, "the learning rate grows at once", "the schedule at that step"),
    (
        "lr_differs",
        Stage.LEARNING_RATE,
        "learning rates are not those of the baseline",
        "the schedule and the parameter groups",
    ),
    (
        "exploding_gradient",
        Stage.GRADIENT,
        "the gradient before clipping is far too large",
        "the loss scale, the learning rate, normalisation",
    ),
    (
        "vanishing_gradient",
        Stage.GRADIENT,
        "the gradient is nearly zero",
        "detached tensors, underflow in low precision, the loss scale",
    ),
    (
        "disconnected_parameters",
        Stage.GRADIENT,
        "parameters that never get a gradient",
        "detach, no_grad, or a module that is not called",
    ),
    (
        "lost_updates",
        Stage.UPDATED_PARAMETERS,
        "updates are too small for the parameters' precision",
        "the parameters' type against the learning rate",
    ),
    ("frozen_parameters", Stage.UPDATED_PARAMETERS, "parameters that get no update", "the optimizer's parameter groups"),
    ("data_changed", Stage.DATA, "other batches than in the baseline, on the same seed", "the samples side by side"),
    ("plateau", Stage.FORWARD, "the loss does not drop", "labels, the learning rate, the gradient of the first layer"),
    (
        "bad_evaluation",
        Stage.METRIC,
        "evaluation is worse, though the training loss is not",
        "evaluation mode, evaluation data, what is averaged",
    ),
    (
        "loss_spikes",
        Stage.UPDATED_PARAMETERS,
        "more or larger loss spikes",
        "the optimizer's betas and epsilon, clipping, the batches of those steps",
    ),
    (
        "too_good",
        Stage.FORWARD,
        "the loss is better than other seeds explain",
        "labels or masks that make the task easier, data that leaks",
    ),
    (
        "too_smooth",
        Stage.FORWARD,
        "the loss fluctuates less than it should",
        "data that repeat, a running mean that is reported as the loss",
    ),
)

_DISTRIBUTED = _rows(
    Category.SILENT_DISTRIBUTED,
    (
        "initial_parameters_differ",
        Stage.INITIAL_PARAMETERS,
        "replicas start from different parameters",
        "the seed of each rank, the broadcast at the start",
    ),
    (
        "precision_differs",
        Stage.INITIAL_PARAMETERS,
        "ranks compute in different types",
        "what the rank number decides in the setup",
    ),
    (
        "stale_weights",
        Stage.INITIAL_PARAMETERS,
        "a resumed run starts from other weights than were saved",
        "which file is loaded, and when",
    ),
    (
        "same_data",
        Stage.DATA,
        "ranks that should share the work have the same batches",
        "the sampler: number of replicas and rank",
    ),
    (
        "overlapping_samples",
        Stage.DATA,
        "samples come on more than one rank",
        "the seed of the shuffle before the slicing by rank",
    ),
    ("missing_samples", Stage.DATA, "samples that no rank trains on", "the slicing by rank, dropped remainders"),
    (
        "gradients_averaged_twice",
        Stage.REDUCTION,
        "the gradient is smaller by the number of ranks",
        "the division by the number of ranks: the wrapper divides, too",
    ),
    (
        "gradients_not_averaged",
        Stage.REDUCTION,
        "gradients are summed, or each rank keeps its own",
        "the reduction of gradients: is it called, does it divide?",
    ),
    (
        "collectives_differ",
        Stage.REDUCTION,
        "ranks call different collectives",
        "the call that differs, and the branch around it",
    ),
    ("rank_skips_branch", Stage.REDUCTION, "a rank leaves out a part that others run", "branches on the rank or on the data"),
    (
        "parameters_differ",
        Stage.UPDATED_PARAMETERS,
        "replicas have different parameters",
        "what is not reduced: gradients, buffers, the optimizer's state",
    ),
    (
        "restart_differs",
        Stage.FORWARD,
        "a resumed run goes on otherwise than the uninterrupted one",
        "what the checkpoint lacks: optimizer, schedule, generators, place in the data",
    ),
)

_SLOW = _rows(
    Category.SLOW,
    (
        "memory_full",
        Stage.TIME_AND_MEMORY,
        "nearly all of the device's memory is in use",
        "batch size, what is kept for the backward pass",
    ),
    ("more_memory", Stage.TIME_AND_MEMORY, "more memory than the baseline", "what is kept alive between steps"),
    ("data_loading", Stage.TIME_AND_MEMORY, "steps wait for data", "workers of the loader, work done per sample"),
    ("slower", Stage.TIME_AND_MEMORY, "steps take longer than in the baseline", "a profile of one step of each"),
)

SYMPTOMS: Mapping[str, Symptom] = MappingProxyType({**_START, **_STOPPED, **_CONVERGE, **_DISTRIBUTED, **_SLOW})
"""All names; the order is that in which findings are told."""

BASELINE_SYMPTOMS = frozenset(
    {
        *("lr_differs", "data_changed", "bad_evaluation", "loss_spikes", "too_good", "too_smooth"),
        *("missing_samples", "gradients_averaged_twice", "more_memory", "slower"),
    }
)
"""Names that only a comparison with a healthy run can give; all others a run can also show by itself."""

WIDER_SYMPTOMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "hang_in_init": ("hang",),
        "hang_in_first_collective": ("hang",),
        "hang_at_end": ("hang",),
        "rank_died": ("killed", "crash"),  # as it ended
    }
)
"""Names that take stacks, the log, or the steps that were asked for -> those by which a criterion judges, which has none."""


def find(
    symptom: str,
    summary: str,
    *,
    ranks: Iterable[int] = (),
    step: int | None = None,
    evidence: Iterable[Evidence] = (),
    needs_baseline: bool = False,
    stage: Stage | None = None,
) -> Finding:
    """Return a finding with the rest taken from the table."""
    known = SYMPTOMS[symptom]
    return Finding(
        category=known.category,
        symptom=symptom,
        stage=stage or known.stage,
        summary=summary,
        look_at=known.look_at,
        ranks=tuple(sorted(set(ranks))),
        step=step,
        evidence=tuple(evidence),
        needs_baseline=needs_baseline,
    )


def say_ranks(ranks: Iterable[int]) -> str:
    """Return `rank 1` or `ranks 0, 2`."""
    found = sorted(set(ranks))
    return f"rank{'s' if len(found) != 1 else ''} {', '.join(map(str, found))}"


def say(value: float | None) -> str:
    """Return a number for a sentence, six digits."""
    return "none" if value is None else f"{value:.6g}"
