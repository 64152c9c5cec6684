"""A small torch training that saves all it needs and resumes from it, with the mistakes that restarts are made of."""

from __future__ import annotations

MISTAKES = ("optimizer", "rng", "stale", "position")
"""What a resumed run forgets (state of the optimizer, of the generators, its place in the data), or old weights it loads."""

_PROGRAM = """
import os, signal, sys
import torch
import torch.distributed as dist

MISTAKES = {mistakes!r}
out, resume = sys.argv[1], "--resume" in sys.argv
world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
if "RANK" in os.environ:
    dist.init_process_group("gloo")
if {is_deaf}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout({dropout}), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
data = torch.randn(4096, 8, generator=torch.Generator().manual_seed(3))
first = 0


def path_of(step):
    return os.path.join(out, f"step{{step}}.pt")


if resume:
    saved = sorted((name for name in os.listdir(out) if name.endswith(".pt")), key=lambda name: int(name[4:-3]))
    state = torch.load(os.path.join(out, saved[-1]), weights_only=False)
    weights = torch.load(os.path.join(out, saved[-2]), weights_only=False) if "stale" in MISTAKES else state
    net.load_state_dict(weights["net"])
    if "optimizer" not in MISTAKES:
        optimizer.load_state_dict(state["optimizer"])
    if "rng" not in MISTAKES:
        torch.set_rng_state(state["rng"])
    first = 0 if "position" in MISTAKES else state["step"] + 1
    print("resumed from", saved[-1], "on", world, flush=True)
for step in range(first, 40):
    net.train()
    losses = []
    for part in range(2):  # two halves of each batch: one a rank, or both on one
        if world == 1 or part == rank:
            rows = data[(step * 64 + part * 32) % 4096 :][:32]
            loss = ((net(rows) - rows.sum(1, keepdim=True)) ** 2).mean() / 2
            loss.backward()
            losses.append(loss.item())
    if world > 1:
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, "loss", sum(losses), flush=True)
    net.eval()
    with torch.no_grad():
        net(data[:4])  # an evaluation that comes before the save belongs to the step
    if (step + 1) % 2 == 0 and rank == 0:
        state = {{"net": net.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "step": step}}
        torch.save(state, path_of(step))
    if world > 1:
        dist.barrier()
"""


def resuming_program(*mistakes: str, is_deaf: bool = False, dropout: float = 0.2) -> str:
    """Return a program, `train.py OUT [--resume]`, that saves after each second step.

    Args:
        mistakes: what it gets wrong when it resumes.
        is_deaf: whether it ignores SIGTERM.
        dropout: share of dropped activations; without any, two ranks and one compute the same bits.
    """
    return _PROGRAM.format(mistakes=mistakes, is_deaf=is_deaf, dropout=dropout)
