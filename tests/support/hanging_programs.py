"""Torch programs of two gloo ranks that hang, or of which one rank dies; each is `train.py` under torchrun or spawns itself."""

from __future__ import annotations

_HEAD = """
import os, signal, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, *, before=lambda rank, step: None, steps=6):
    torch.manual_seed(1)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        before(rank, step)
        net(torch.ones(2, 4)).sum().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


def worker(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    train(rank, before=fault)


def spawn():
    mp.spawn(worker, args=(int(sys.argv[1]),), nprocs=2)


def start_all():
    ranks = [mp.get_context("spawn").Process(target=worker, args=(rank, int(sys.argv[1]))) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


"""
INIT = _HEAD + "worker(0, int(sys.argv[1]))\n"
"""The only rank of two that was started."""
LAST_BARRIER = (
    _HEAD
    + """dist.init_process_group("gloo")
train(dist.get_rank())
if dist.get_rank() == 0:
    torch.save({}, os.path.join(sys.argv[1], "last.pt"))
    dist.barrier()
dist.barrier()
dist.all_reduce(torch.ones(3))
"""
)
"""Rank 0 has a barrier of its own: it waits in its second one while rank 1 waits in the sum that comes after it."""

_FAULTS = {
    "raises": "raise ValueError('bad batch of rank 1')",
    "exits": "os._exit(3)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
}
FAULTS = tuple(_FAULTS)


def dying(fault: str, how: str) -> str:
    """Return a program whose rank 1 dies at its third step.

    Args:
        fault: raises, exits (with status 3) or killed (by SIGKILL).
        how: torchrun, spawn (`torch.multiprocessing.spawn`) or processes (plain ones, that nobody watches).
    """
    body = f"def fault(rank, step):\n    if (rank, step) == (1, 2):\n        {_FAULTS[fault]}\n\n\n"
    if how == "torchrun":
        start = 'dist.init_process_group("gloo")\ntrain(dist.get_rank(), before=fault)\n'
    else:
        start = f"if __name__ == '__main__':\n    {'spawn' if how == 'spawn' else 'start_all'}()\n"
    return _HEAD + body + start
