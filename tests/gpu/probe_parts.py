"""What becomes of real probes on a GPU: running out of memory is named, probes share a device, the culprit is found.

Needs what the package needs, but for Ray: where that is missing, probes run in threads of this process.
"""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.outcome import Outcome, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bisect_train.core.executor import Executor
    from bisect_train.core.question import Question

OUT_OF_MEMORY = """
import sys, torch
device = sys.argv[1]
model = torch.nn.Linear(256, 256).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    if step == 3:
        size = 2 * torch.cuda.mem_get_info()[1] if device == "cuda" else 1 << 50
        more = torch.empty(size, dtype=torch.uint8, device=device)
    loss = model(torch.ones(4, 256, device=device)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
TRAIN = """
import os, time, sys, torch
import settings
device = sys.argv[1]
began = time.time()
torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=settings.LR)
for step in range(40):
    x = torch.randn(256, 64, device=device)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    place = os.path.join(os.environ["SHOW_TIMES"], str(os.getpid()))
    with open(place + ".new", "w") as file:  # it is ended at any moment
        file.write(f"{began} {time.time()} {torch.cuda.get_device_name() if device == 'cuda' else device}")
    os.replace(place + ".new", place)
"""
NUM_COMMITS, CULPRIT, STEPS = 6, 3, 20


def show_out_of_memory(setting: Setting) -> Outcome:
    """Run a probe that asks for twice the device's memory at step 3; what is said of it must be just that."""
    from bisect_train.core.probe import RunSettings
    from bisect_train.verdict.triage import triage
    from bisect_train.verdict.triage.asked import Asked
    from bisect_train_workers.injection import RECORDER_FOLDER
    from tests.support.probes import TinyRepo, make_job, result_of

    commit = TinyRepo(setting.folder / "repo").commit({"train.py": OUT_OF_MEMORY})
    own = RunSettings(sys.executable, gpus=1.0 if setting.device == "cuda" else 0.0, timeout_s=120.0, triage=True)
    job = make_job(commit, command=("python", "train.py", setting.device), steps=8, settings=own)
    result = result_of(job, setting.folder / "node", recorder=RECORDER_FOLDER)
    ending = result.fingerprint.ending
    symptoms = [finding.symptom for finding in triage(result, asked=Asked(steps=8)).findings]
    num_steps = result.fingerprint.num_steps
    figures = {"ending": ending.kind.value, "signature": ending.signature, "message": ending.message, "symptoms": symptoms}
    is_fine = ending.kind.value == "out_of_memory" and symptoms[:1] == ["out_of_memory"] and num_steps == 3
    said = f"ending {ending.kind.value}, first symptom {symptoms[:1] or None}, after {num_steps} steps: {ending.message[:100]}"
    return Outcome(is_fine, said, figures)


def show_bisection(setting: Setting) -> Outcome:
    """Bisect six commits with probes that take half a GPU each: the right one is named, and two ran at the same time."""
    from bisect_train.changes.space import build_space
    from bisect_train.coordinator import Coordinator
    from bisect_train.store.memory import MemoryStore
    from tests.support.git_repos import UserRepo, question_of

    repo = UserRepo.create(setting.folder / "repo")
    commits = [
        repo.commit({"train.py": TRAIN, "settings.py": f"LR = {0.00001 if idx >= CULPRIT else 0.01}\n", f"part{idx}.py": ""})
        for idx in range(NUM_COMMITS)
    ]
    times = setting.folder / "times"
    times.mkdir()
    os.environ["SHOW_TIMES"] = str(times)
    is_cuda = setting.device == "cuda"
    question = question_of(commits[0], commits[-1], command=("python", "train.py", setting.device))
    settings = replace(question.settings, python=sys.executable, gpus=0.5 if is_cuda else 0.0, timeout_s=120.0)
    question = replace(question, repo=str(repo.path), settings=settings, rung=replace(question.rung, steps=STEPS))
    space = build_space(repo.open(setting.folder / "home"), question)
    store = MemoryStore()
    name = store.create(question.to_json(), title="on a GPU")
    with open_executor(question, setting) as (kind, executor), store.lock(name):
        ended = Coordinator(question, bisection_id=name, space=space, store=store, executor=executor).run()
    found = [space.changes[idx].id for culprit in ended.answer.culprits for idx in culprit.changes]
    spans = [file.read_text().split(maxsplit=2) for file in times.iterdir() if file.suffix != ".new"]
    together = most_together([(float(begin), float(end)) for begin, end, _ in spans])
    devices = sorted({device for _, _, device in spans})
    figures: dict[str, Any] = {"executor": kind, "status": ended.answer.status, "probes": len(spans), "together": together}
    figures |= {"devices": devices, "wall_s": ended.wall_s, "repeats": ended.plan_with_answer.ends.do_bits_repeat}
    is_right = ended.answer.status == "isolated" and found == [commits[CULPRIT]]
    said = f"{ended.answer.status} {'the right commit' if is_right else found} with {len(spans)} probes in {ended.wall_s:.0f} s"
    said += f" ({kind}), at most {together} at the same time on {', '.join(devices)}"
    return Outcome(is_right and (together >= 2 or not is_cuda), said, figures)


def most_together(spans: list[tuple[float, float]]) -> int:
    """Return how many of the time spans have a moment in common, at most."""
    events = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    return max(itertools.accumulate(change for _, change in events), default=0)


@contextmanager
def open_executor(question: Question, setting: Setting) -> Iterator[tuple[str, Executor]]:
    """Give Ray's executor, or one of threads where Ray is not installed."""
    try:
        from bisect_train_workers.ray_executor import RayExecutor
    except ImportError:
        from tests.gpu.threads import ThreadExecutor

        executor: Executor = ThreadExecutor(question.settings, setting.folder / "node", slots=2)
        kind = "threads: Ray is not installed"
    else:
        executor, kind = RayExecutor(question.settings, node_home=Path(setting.folder) / "node"), "Ray"
    try:
        yield kind, executor
    finally:
        executor.close()
