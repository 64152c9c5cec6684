"""What should be equal on all ranks and is not: parameters, precision, collectives, the path through the program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bisect_train.core.fingerprint import EndingKind, StepRecord
from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.averaging import averages_now_and_then
from bisect_train.verdict.triage.failure_text import is_collective_mismatch, is_peer_gone
from bisect_train.verdict.triage.finding import Category, Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView, number
from bisect_train.verdict.triage.start import exceptions_of
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say_ranks

MIN_STEPS = 3  # in a row of different types: a gradient may be missing once; chosen, not measured
MIN_EQUAL_NORMS = (
    2  # steps with gradients that are equal to the last digit on all ranks make ranks replicas; chosen, not measured
)
_UNEVEN = frozenset({"all_to_all", "all_to_all_single", "gather", "scatter", "gather_object", "scatter_object_list"})


_Reader = Callable[[StepRecord], Hashable]


def odd_ranks(values: Mapping[int, Hashable], usual: Mapping[int, Hashable] | None = None) -> list[int]:
    """Return the ranks that stand out: unlike `usual` if only some are, else unlike the majority; all of them on a tie."""
    if usual is not None:
        unlike = [rank for rank, value in values.items() if rank in usual and usual[rank] != value]
        if 0 < len(unlike) < len(values):
            return unlike
    counts = Counter(values.values()).most_common()
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        return sorted(values)
    return sorted(rank for rank, value in values.items() if value != counts[0][0])


def find_initial_difference(look: Look) -> Iterator[Finding]:
    """Tell of replicas that start from different parameters.

    Without a baseline only ranks of one process group count whose gradients are equal to the last digit though their
    parameters are not, and whose models are of one size: shards and stages have gradients of their own.
    """
    run, hashes = look.run, look.run.initial_hashes()
    base_hashes = look.peer.initial_hashes() if look.peer is not None else {}
    if look.peer is not None and base_hashes:
        for group in _groups_of(base_hashes):
            mine = {rank: hashes[rank] for rank in group if rank in hashes}
            if len(set(mine.values())) > 1:
                yield _initial(
                    mine, odd_ranks(mine, base_hashes), "equal, as in the baseline", "the baseline", needs_baseline=True
                )
    elif len(hashes) > 1 and len(set(hashes.values())) > 1 and _has_equal_gradients(run):
        yield _initial(hashes, odd_ranks(hashes), "equal", "ranks with the same gradients are replicas", needs_baseline=False)


def _initial(hashes: Mapping[int, str], ranks: Sequence[int], expected: str, source: str, *, needs_baseline: bool) -> Finding:
    evidence = [
        Evidence("hash of the initial parameters", value, expected, source, rank) for rank, value in sorted(hashes.items())
    ]
    summary = f"{say_ranks(hashes)} start from different parameters"
    return find("initial_parameters_differ", summary, ranks=ranks, step=0, evidence=evidence, needs_baseline=needs_baseline)


def _groups_of(hashes: Mapping[int, str]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for rank, value in hashes.items():
        groups.setdefault(value, []).append(rank)
    return [group for group in groups.values() if len(group) > 1]


def _has_equal_gradients(run: RunView) -> bool:
    sizes = [number(data.get("num_params")) for data in run.first_data("initial_params").values()]
    if len(set(sizes)) != 1 or sizes[0] is None or len(run.events("process_group")) < len(run.steps):
        return False
    steps = run.shared_steps[:10]
    norms = [{(record.grad_norm, record.clip_norm) for record in run.at(step).values()} for step in steps]
    has_norm = all(record.grad_norm for step in steps for record in run.at(step).values())
    return len(steps) >= MIN_EQUAL_NORMS and has_norm and all(len(values) == 1 for values in norms)


def find_parameter_difference(look: Look) -> Iterator[Finding]:
    """Tell of replicas whose parameters differ: at a step where the baseline's agree, or from some step to the end."""
    run, base = look.run, look.peer
    if next(find_initial_difference(look), None) is not None:
        return
    sampled = run.sampled_steps
    if base is not None:
        theirs = set(base.sampled_steps)
        agreed = [step for step in sampled if step in theirs]
        groups = [group for group in base.replica_groups if _agree(base, group, agreed)]
        usual, source = base, "the baseline"
    else:
        agreed, groups, usual, source = sampled, list(run.replica_groups), None, "ranks that started, or were, equal"
    for group in groups:
        step = next((step for step in agreed if not _agree(run, group, [step])), None)
        if step is not None and (base is not None or _has_parted(run, group, [later for later in agreed if later >= step])):
            hashes = {rank: value for rank, value in run.param_hashes(step).items() if rank in group}
            odd = odd_ranks(hashes, usual.param_hashes(step) if usual is not None else None)
            evidence = [
                Evidence(f"parameter hash at step {step}", value, "equal", source, rank) for rank, value in hashes.items()
            ]
            has_group = len(run.events("process_group")) >= len(group)
            evidence += [] if has_group else [Evidence("process group", "never made", "one of all ranks")]
            more = "" if has_group else ": no process group was ever made, each rank trains alone"
            summary = f"the parameters of {say_ranks(hashes)} differ from step {step} on{more}"
            yield find("parameters_differ", summary, ranks=odd, step=step, evidence=evidence, needs_baseline=base is not None)


def _has_parted(run: RunView, group: Sequence[int], steps: Sequence[int]) -> bool:
    """Return whether replicas never agree again: those that are averaged now and then do."""
    return not averages_now_and_then(run) and not any(_agree(run, group, [step]) for step in steps)


def _agree(run: RunView, group: Sequence[int], steps: Sequence[int]) -> bool:
    return all(len({value for rank, value in run.param_hashes(step).items() if rank in group}) == 1 for step in steps)


def find_precision_difference(look: Look) -> Iterator[Finding]:
    """Tell of ranks of one model size that compute in different types at several steps in a row."""
    run = look.run
    sizes = {number(data.get("num_params")) for data in run.first_data("first_batch").values()}
    if len(run.steps) < 2 or len(sizes) != 1 or None in sizes:
        return
    needed = min(MIN_STEPS, max(1, len(run.shared_steps)))
    in_row: list[int] = []
    for step in run.shared_steps:
        kinds = _types(run.at(step))
        is_split = all(kinds.values()) and len(set(kinds.values())) > 1
        in_row = [*in_row, step] if is_split else []
        if len(in_row) >= needed:
            base = _types(look.peer.at(step)) if look.peer is not None else {}
            if kinds != base:
                yield _precision(kinds, odd_ranks(kinds, base or None), in_row[0])
            return


def _precision(kinds: Mapping[int, tuple[str, ...]], ranks: Sequence[int], step: int) -> Finding:
    source = f"{MIN_STEPS} steps in a row; {CHOSEN}"
    evidence = [Evidence("types", ", ".join(kind), "equal on all ranks", source, rank) for rank, kind in sorted(kinds.items())]
    verb = "computes" if len(ranks) == 1 else "compute"
    is_some = len(ranks) < len(kinds)
    summary = f"{say_ranks(ranks)} {verb} in other types than the rest" if is_some else "ranks compute in different types"
    return find("precision_differs", summary, ranks=ranks, step=step, evidence=evidence)


def _types(records: Mapping[int, StepRecord]) -> dict[int, tuple[str, ...]]:
    """Return the types of a step by rank; those of gradients only where no rank lacks one."""
    has_all = not any(record.missing_grads for record in records.values())
    return {
        rank: tuple(sorted(kind for kind in record.dtypes if has_all or not kind.startswith("grad:")))
        for rank, record in records.items()
    }


def find_collective_difference(look: Look) -> Iterator[Finding]:
    """Tell of the first collective that differs between ranks in operation, shape or type.

    Ranks that send to each other (pipelines) differ rightly; a group of ranks may have calls of its own, so what the baseline
    shows as well is no finding. Where the run was aborted in these calls, they are why it stopped.
    """
    calls = _calls(look.run)
    if len(calls) < 2 or look.run.has_point_to_point:
        return
    theirs = _calls(look.peer) if look.peer is not None else {}
    place = _first_difference(calls)
    if place is not None and (len(theirs) < 2 or _first_difference(theirs) is None):
        shown = {rank: entered[place] for rank, entered in sorted(calls.items())}
        evidence = [
            Evidence(f"collective call {call.idx}", call.text, "equal on all ranks", "what collectives require", rank)
            for rank, call in shown.items()
        ]
        idxs = list(dict.fromkeys(call.idx for call in shown.values()))
        said = " against ".join(
            f"{call.text} on rank {rank}" + (f" (its call {call.idx})" if len(idxs) > 1 else "") for rank, call in shown.items()
        )
        what = f"collective call {idxs[0]}" if len(idxs) == 1 else f"collective call {place} over all ranks"
        ranks = odd_ranks({rank: call.kind for rank, call in shown.items()})
        found = find("collectives_differ", f"{what} differs between ranks: {said}", ranks=ranks, evidence=evidence)
        yield replace(found, category=Category.STOPPED) if _was_aborted_in(look.run, shown) else found


def _was_aborted_in(run: RunView, calls: Mapping[int, _Call]) -> bool:
    """Return whether a run ended by a signal or an exception in calls that do not fit each other.

    So it is where no rank failed of its own accord, and those that left without a word made no other call, and no step, after
    it. Hangs are told with the calls in which ranks wait.
    """
    raised = exceptions_of(run)
    if run.fingerprint.ending.kind not in (EndingKind.KILLED, EndingKind.CRASHED):
        return False
    if not all(is_peer_gone(text) or is_collective_mismatch(text) for _, text in raised):
        return False
    silent = calls.keys() - {rank for rank, _ in raised}
    return all(_is_last(run, rank, calls[rank]) for rank in silent or calls)


def _is_last(run: RunView, rank: int, call: _Call) -> bool:
    last = run.events("collective")[rank][-1]
    return number(last.data.get("idx")) == call.idx and (last.step or 0) > max(run.steps[rank], default=-1)


@dataclass(frozen=True, slots=True)
class _Call:
    """One collective call of a rank: its number among all of that rank's calls, and (operation, shape, type)."""

    idx: int
    kind: tuple[str, str, str]

    @property
    def text(self) -> str:
        return " ".join(filter(None, self.kind))


def _calls(run: RunView) -> dict[int, list[_Call]]:
    """Return each rank's first calls over all ranks: those that were recorded without a gap."""
    found = {}
    for rank, events in run.events("collective").items():
        calls = []
        for place, event in enumerate(events):
            if number(event.data.get("idx", place)) != place:
                break
            op = str(event.data.get("op", ""))
            shape = "" if op in _UNEVEN else str(event.data.get("shape") or "")
            if event.data.get("group") is None:
                calls.append(_Call(place, (op, shape, str(event.data.get("dtype") or ""))))
        found[rank] = calls
    return found


def _first_difference(calls: Mapping[int, Sequence[_Call]]) -> int | None:
    """Return the place of the first call over all ranks of which the ranks make different ones."""
    shortest = min(len(entered) for entered in calls.values())
    return next((place for place in range(shortest) if len({entered[place].kind for entered in calls.values()}) > 1), None)


def find_skipped_branch(look: Look) -> Iterator[Finding]:
    """Tell of a replica that makes fewer collectives or skips a step that others take; against a baseline also of one with
    other micro-batches or missing gradients."""
    run, base = look.run, look.peer
    groups = base.replica_groups if base is not None else run.replica_groups
    if run.has_point_to_point:
        return
    readers: list[tuple[str, _Reader]] = [
        ("collective calls", _num_calls),
        ("step skipped by the gradient scaler", lambda record: record.skipped),
    ]
    if base is not None:
        readers += [
            ("micro-batches", lambda record: len(record.micro)),
            ("parameters without a gradient", lambda record: record.missing_grads),
        ]
    for group in groups:
        for step in run.shared_steps:
            for what, read in readers:
                values = _of_group(run, group, step, read)
                theirs = _of_group(base, group, step, read) if base is not None else {}
                if len(set(values.values())) > 1 and None not in values.values() and len(set(theirs.values())) <= 1:
                    yield _skipped(what, values, odd_ranks(values, theirs or None), step, needs_baseline=base is not None)
                    return


def _of_group(run: RunView, group: Sequence[int], step: int, read: _Reader) -> dict[int, Hashable]:
    return {rank: read(record) for rank, record in run.at(step).items() if rank in group}


def _num_calls(record: StepRecord) -> int | None:
    """Return the number in `12:0a1b2c3d`, None where there is none."""
    text = (record.collectives or "").partition(":")[0]
    return int(text) if text.isdigit() else None


def _skipped(what: str, values: Mapping[int, Hashable], ranks: Sequence[int], step: int, *, needs_baseline: bool) -> Finding:
    evidence = [
        Evidence(f"{what} at step {step}", str(value), "equal on all ranks", "replicas run the same program", rank)
        for rank, value in sorted(values.items())
    ]
    said = ", ".join(f"{value} on rank {rank}" for rank, value in sorted(values.items()))
    return find(
        "rank_skips_branch",
        f"{what} at step {step}: {said}",
        ranks=ranks,
        step=step,
        evidence=evidence,
        needs_baseline=needs_baseline,
    )
