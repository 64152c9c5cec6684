"""What stood in for modules and hardware in the probes, in words: it is part of what they cover and cannot see."""

from __future__ import annotations

from bisect_train.core.question import Question
from bisect_train.report.case import Case


def used_stubs(case: Case) -> tuple[str, ...]:
    """Return the modules that an inert stand-in took the place of in any run."""
    said = {dict(run.fingerprint.facts).get("stubs", "") for run in case.runs}
    return tuple(sorted({name for text in said for name in text.split(", ") if name}))


def say_covered(case: Case) -> tuple[str, ...]:
    """Return what is covered in another way than the user's own machine would."""
    said = []
    if stubs := used_stubs(case):
        said.append(f"the program with inert stand-ins for modules that are not installed: {', '.join(stubs)}")
    if shims := case.question.settings.shims:
        said.append(f"the program as a stand-in for its hardware ran it: {', '.join(shims)}")
    if any(when.command for when in case.question.whens):
        said.append("each version with the command that the recipe has for it (`when`)")
    return tuple(said)


def say_unseen(case: Case) -> tuple[str, ...]:
    """Return what stand-ins hide."""
    said = []
    if stubs := used_stubs(case):
        said.append(f"what {', '.join(stubs)} would have done: a stand-in does nothing")
    if case.question.settings.shims:
        said.append("CUDA and NCCL: kernels, number formats, streams, memory and collectives were those of the CPU and gloo")
    return tuple(said)


def warn_of_shims(question: Question) -> tuple[str, ...]:
    """Return the warning that the program did not run on what it asks for."""
    shims = question.settings.shims
    return (f"{', '.join(shims)}: every run used the CPU and gloo in place of CUDA and NCCL, as asked for",) if shims else ()
