"""Triage of any record, however odd, ends without an error and says only what the table knows."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, MetricSeries, RankRecord, StepRecord
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.divergence import first_divergence
from bisect_train.verdict.triage import (
    BASELINE_SYMPTOMS,
    DERIVED_METRICS,
    SYMPTOMS,
    Asked,
    Triage,
    derived_metric,
    hard_symptoms,
    triage,
)
from tests.support.properties import examples

NUMBERS = st.one_of(st.none(), st.sampled_from([0.0, 1.0, -1.0, 1e-9, 5e3, float("nan"), float("inf"), 1e308]), st.floats())
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "0" * 16, "1:ff", "x:y", "12345678"]))
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "loss": NUMBERS,
    "micro": st.lists(st.floats(), max_size=2).map(tuple),
    "grad_norm": NUMBERS,
    "whole_grad_norm": NUMBERS,
    "whole_param_norm": NUMBERS,
    "clip_norm": NUMBERS,
    "lr": st.lists(st.one_of(st.floats(), st.sampled_from([0.0, 0.1])), max_size=3).map(tuple),
    "missing_grads": st.integers(0, 3),
    "param_norm": NUMBERS,
    "param_hash": TEXTS,
    "rng_hash": TEXTS,
    "batch_hash": TEXTS,
    "step_s": NUMBERS,
    "step_cpu_s": NUMBERS,
    "step_cuda_s": NUMBERS,
    "skipped": st.booleans(),
    "dtypes": st.lists(st.sampled_from(["param:bfloat16", "param:float32", "grad:float32", "odd"]), max_size=2).map(tuple),
    "rss_mib": NUMBERS,
    "cuda_mib": NUMBERS,
    "self_s": NUMBERS,
    "data_s": NUMBERS,
    "moved": NUMBERS,
    "samples": TEXTS,
    "collectives": TEXTS,
}
NAMES = [
    *("initial_params", "first_batch", "gradients", "still_params", "collective", "process_group", "process_group_begin"),
    *("checkpoint_loaded", "checkpoint_saved", "device", "imports", "exception", "exit", "torch_imported", "batch", "restart"),
]
KEYS = [
    *(
        "param_hash",
        "param_norm",
        "num_params",
        "missing",
        "zero",
        "num",
        "names",
        "of",
        "idx",
        "op",
        "shape",
        "dtype",
        "group",
    ),
    *("world_size", "rank", "outside", "exc_type", "message", "code", "version", "values", "step", "total_mib", "unexpected"),
    *("missing_names", "save_at", "resumed_ranks"),
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**12),
    st.floats(),
    st.sampled_from(["", "a", "all_reduce", "send", "Connection closed by peer", "CUDA out of memory", "3"]),
    st.lists(st.one_of(st.integers(0, 3), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
)
STEPS = st.fixed_dictionaries({}, optional=FIELDS)
EVENTS = st.builds(
    Event,
    st.sampled_from(NAMES),
    st.one_of(st.none(), st.integers(0, 5)),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
)
MESSAGES = [
    "",
    "KeyError: 'x'",
    "imported a from b, not from the checkout",
    "Tried to allocate 2 GiB",
    "DistStoreError",
    "\n\n",
]
ENDINGS = st.builds(
    Ending,
    st.sampled_from(EndingKind),
    st.sampled_from(["", "timeout: hang", "timeout: slow", "x"]),
    st.sampled_from(MESSAGES),
    st.one_of(st.none(), st.integers(-9, 2)),
    st.one_of(st.none(), st.just(9)),
)
FRAMES = st.sampled_from(
    [
        "Current thread 0x1 (most recent call first):",
        '  File "/a/site-packages/torch/distributed/distributed_c10d.py", line 1 in barrier',
        '  File "/a/site-packages/torch/distributed/run.py", line 1 in main',
        '  File "/checkout/train.py", line 2 in <module>',
        '  File "", line ??? in ',
        "garbage",
    ]
)
STACKS = st.lists(
    st.tuples(
        st.sampled_from(["stacks-rank0-pid1.txt", "stacks-rank9-pid2.txt", "odd"]),
        st.lists(FRAMES, max_size=5).map("\n".join),
    ),
    max_size=3,
).map(tuple)


@st.composite
def ranks_of(draw: st.DrawFn) -> tuple[RankRecord, ...]:
    """Ranks of unequal length; steps may repeat one pattern, so that rules that need many of them see them."""
    records = []
    for rank in draw(st.lists(st.integers(0, 3), unique=True, max_size=3)):
        pattern, num_steps = draw(st.lists(STEPS, min_size=1, max_size=3)), draw(st.sampled_from([0, 1, 2, 5, 25]))
        first = draw(st.sampled_from([0, 0, 0, 3]))
        steps = tuple(StepRecord(first + idx, **pattern[idx % len(pattern)]) for idx in range(num_steps))
        records.append(RankRecord(rank, steps, tuple(draw(st.lists(EVENTS, max_size=5)))))
    return tuple(records)


METRICS = st.lists(
    st.builds(
        MetricSeries,
        st.sampled_from(["loss", "val_loss", "val_acc", "speed"]),
        st.lists(st.floats(), max_size=3).map(tuple),
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
    ),
    max_size=2,
    unique_by=lambda series: series.name,
).map(tuple)
FACTS = st.dictionaries(st.sampled_from(["torch", "python", "world_size"]), st.sampled_from(["1", "2", "x", ""])).map(
    lambda facts: tuple(sorted(facts.items()))
)
FINGERPRINTS = st.builds(
    lambda ending, ranks, metrics, facts, whole: Fingerprint(ending, ranks, metrics, None, facts, whole),
    ENDINGS,
    ranks_of(),
    METRICS,
    FACTS,
    st.one_of(st.just(()), ranks_of()),
)
HEALTHY = st.builds(lambda run: Fingerprint(Ending(EndingKind.STOPPED), run.ranks, run.metrics, facts=run.facts), FINGERPRINTS)
RESULTS = st.builds(lambda run, stacks: ProbeResult("", run, stacks=stacks, log_tail="exitcode : -9"), FINGERPRINTS, STACKS)
ASKED = st.builds(
    Asked, st.one_of(st.none(), st.integers(0, 12)), st.integers(1, 4), st.just(60.0), sanity_window=st.integers(0, 20)
)
odd = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def check(found: Triage) -> None:
    for finding in found.findings:
        assert finding.symptom in SYMPTOMS and finding.summary and finding.look_at
        assert all(isinstance(item.value, str) and isinstance(item.expected, str) for item in finding.evidence)


def test_strategy_knows_every_field_of_a_step() -> None:
    assert {item.name for item in fields(StepRecord)} == {"step", *FIELDS}


@odd
@given(RESULTS, ASKED)
def test_triage_of_an_odd_record_never_raises(run: ProbeResult, asked: Asked) -> None:
    found = triage(run, asked=asked)
    check(found)
    assert not {finding.symptom for finding in found.findings} & BASELINE_SYMPTOMS
    assert not any(finding.needs_baseline for finding in found.findings)


@odd
@given(RESULTS, HEALTHY, st.lists(HEALTHY, max_size=3), ASKED)
def test_triage_against_an_odd_baseline_never_raises(
    run: ProbeResult, base: Fingerprint, others: list[Fingerprint], asked: Asked
) -> None:
    check(triage(run, baseline=ProbeResult("", base), replicates=others, asked=asked))


@odd
@given(HEALTHY, ASKED)
def test_triage_of_a_run_against_itself_shows_only_what_it_shows_alone(run: Fingerprint, asked: Asked) -> None:
    result = ProbeResult("", run)
    against = triage(result, baseline=result, asked=asked)
    assert not any(finding.needs_baseline for finding in against.findings)


@odd
@given(FINGERPRINTS, FINGERPRINTS)
def test_numbers_and_divergences_of_odd_records_never_raise(one: Fingerprint, other: Fingerprint) -> None:
    assert set(hard_symptoms(one)) <= set(SYMPTOMS)
    assert all(isinstance(derived_metric(one, name), float | None) for name in DERIVED_METRICS)
    first_divergence(one, other)
    assert first_divergence(one, one) is None
