"""Engines of two ranks over gloo. Gradients are those of the whole batch: each rank has half of the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from common import (
    NUM_STEPS,
    Engine,
    adamw,
    batch,
    build,
    groups_of,
    loss_of,
    norm_of,
    rank,
    rates,
    say,
    say_digest,
    schedule,
    whole,
    world_size,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

ENGINES: dict[str, Engine] = {}


def engine(function: Engine) -> Engine:
    ENGINES[function.__name__] = function
    return function


def summed(square: float) -> float:
    """Return the root of a sum of squares over the ranks."""
    total = torch.tensor(square, dtype=torch.float64)
    dist.all_reduce(total)
    return float(total) ** 0.5


def local_square(tensors: Iterable[Any]) -> float:
    return sum(float(tensor.detach().double().pow(2).sum()) for tensor in tensors if tensor is not None)


def train(
    model: Any,
    optimizer: Any,
    *,
    clip: Callable[[], Any],
    norms: Callable[[], tuple[float, float]],
    micro: int = 1,
    no_sync: Any = None,
) -> None:
    """Train, clip, step; `norms` gives those of all gradients and of all parameters."""
    plan = schedule(optimizer)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in range(micro):
            context = no_sync() if no_sync and part < micro - 1 else contextlib.nullcontext()
            with context:
                loss = loss_of(model, step, part=rank() + world_size() * part, parts=world_size() * micro) / micro
                loss.backward()
            total += loss.item()
        norm = float(whole(clip()))
        grads, _ = norms()
        optimizer.step()
        _, params = norms()
        say(step, loss=total, clip_norm=norm, grad_norm=grads, param_norm=params, lr=rates(optimizer))
        plan.step()
    say_digest([param.detach() for param in model.parameters()])


def replicated(model: nn.Module) -> Callable[[], tuple[float, float]]:
    return lambda: (norm_of([p.grad for p in model.parameters()]), norm_of(model.parameters()))


def sharded(model: nn.Module) -> Callable[[], tuple[float, float]]:
    """Norms of parameters that are plain tensors, a piece on each rank."""
    return lambda: (
        summed(local_square([p.grad for p in model.parameters()])),
        summed(local_square(model.parameters())),
    )


@engine
def single_reference() -> None:
    """The same on one rank: what the norms of all the others should be."""
    model = build()
    train(model, adamw(model), clip=lambda: clip_grad_norm_(model.parameters(), 0.5), norms=replicated(model))


@engine
def ddp() -> None:
    model = DistributedDataParallel(build())
    train(model, adamw(model), clip=lambda: clip_grad_norm_(model.parameters(), 0.5), norms=replicated(model))


@engine
def ddp_no_sync() -> None:
    model = DistributedDataParallel(build())
    clip = lambda: clip_grad_norm_(model.parameters(), 0.5)  # noqa: E731
    train(model, adamw(model), clip=clip, norms=replicated(model), micro=2, no_sync=model.no_sync)


@engine
def averaged_by_hand() -> None:
    model = build()

    def clip() -> Any:
        for param in model.parameters():
            assert param.grad is not None
            dist.all_reduce(param.grad)
            param.grad /= 2
        return clip_grad_norm_(model.parameters(), 0.5)

    train(model, adamw(model), clip=clip, norms=replicated(model))


@engine
def zero_1() -> None:
    model = DistributedDataParallel(build())
    optimizer = ZeroRedundancyOptimizer(groups_of(model), torch.optim.AdamW, lr=0.5)
    plan = schedule(optimizer)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        norm = float(clip_grad_norm_(model.parameters(), 0.5))
        grads = norm_of([p.grad for p in model.parameters()])
        optimizer.step()
        more = {"param_norm": norm_of(model.parameters()), "lr": rates(optimizer)}
        say(step, loss=loss.item(), clip_norm=norm, grad_norm=grads, **more)
        plan.step()
    say_digest([param.detach() for param in model.parameters()])


def fsdp(**options: Any) -> None:
    torch.manual_seed(7)
    model = FullyShardedDataParallel(build(), device_id=torch.device("cpu"), **options)
    if options.get("use_orig_params"):
        optimizer = adamw(model)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    train(model, optimizer, clip=lambda: model.clip_grad_norm_(0.5), norms=sharded(model))


@engine
def fsdp_flat() -> None:
    fsdp(use_orig_params=False)


@engine
def fsdp_orig() -> None:
    fsdp(use_orig_params=True)


@engine
def fsdp_no_shard() -> None:
    model = FullyShardedDataParallel(
        build(), device_id=torch.device("cpu"), use_orig_params=True, sharding_strategy=ShardingStrategy.NO_SHARD
    )
    train(model, adamw(model), clip=lambda: model.clip_grad_norm_(0.5), norms=replicated(model))


@engine
def fsdp_scaler() -> None:
    """ZeRO stage 3 with a sharded gradient scaler; infinite gradients at step 1."""
    model = FullyShardedDataParallel(build(), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = ShardedGradScaler(device="cpu", init_scale=64.0)
    norms = sharded(model)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step) * (float("inf") if step == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        grads, _ = norms()
        scaler.step(optimizer)
        scaler.update()
        _, params = norms()
        say(step, loss=loss.item(), grad_norm=grads, param_norm=params, lr=rates(optimizer), skipped=step == 1)
    say_digest([param.detach() for param in model.parameters()])


def shard_all(model: nn.Module, mesh: Any) -> nn.Module:
    for part in (model.first, model.second, model.last):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@engine
def fsdp2() -> None:
    mesh = init_device_mesh("cpu", (2,))
    model = shard_all(build(), mesh)
    train(model, adamw(model), clip=lambda: clip_grad_norm_(model.parameters(), 0.5), norms=replicated(model))


@engine
def hsdp() -> None:
    """Replicated over two ranks, sharded over one: DTensors that both ranks hold in full."""
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    model = shard_all(build(), mesh)
    train(model, adamw(model), clip=lambda: clip_grad_norm_(model.parameters(), 0.5), norms=replicated(model))


@engine
def tensor_parallel() -> None:
    """Two layers sharded as DTensors; the other parameters are plain tensors that both ranks hold."""
    mesh = init_device_mesh("cpu", (2,))
    plan = {"first": ColwiseParallel(output_layouts=None), "second": ColwiseParallel(), "last": RowwiseParallel()}
    model = parallelize_module(build(), mesh, {"second": plan["second"], "last": plan["last"]})
    optimizer = torch.optim.AdamW(groups_of(model), lr=0.5, foreach=False)
    norms = replicated(model)
    schedule_of = schedule(optimizer)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        x, y = batch(step)
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        grads, _ = norms()
        optimizer.step()
        _, params = norms()
        say(step, loss=loss.item(), grad_norm=grads, param_norm=params, lr=rates(optimizer))
        schedule_of.step()
    say_digest([param.detach() for param in model.parameters()])


class Stage(nn.Module):
    """Half of the net."""

    def __init__(self, idx: int) -> None:
        super().__init__()
        net = build()
        self.net = nn.Sequential(net.first, net.norm, nn.ReLU()) if idx == 0 else nn.Sequential(net.second, nn.ReLU(), net.last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x)
        return out


def pipelined(schedule_class: Any, **options: Any) -> None:
    model = Stage(rank())
    stage = PipelineStage(model, rank(), 2, torch.device("cpu"))
    pipeline = schedule_class(stage, n_microbatches=4, loss_fn=functional.mse_loss, **options)
    optimizer = adamw(model)
    plan = schedule(optimizer)
    norms = sharded(model)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        x, y = batch(step)
        losses: list[torch.Tensor] = []
        if rank() == 0:
            pipeline.step(x)
        else:
            pipeline.step(target=y, losses=losses)
        grads, _ = norms()
        norm = float(clip_grad_norm_(model.parameters(), 100.0))
        optimizer.step()
        _, params = norms()
        loss = float(torch.stack(losses).mean() if options.get("scale_grads", True) else sum(losses)) if losses else None
        say(step, loss=loss, grad_norm=grads, param_norm=params, clip_norm=norm, lr=rates(optimizer))
        plan.step()
    say_digest([param.detach() for param in model.parameters()])


@engine
def pipeline_gpipe() -> None:
    pipelined(ScheduleGPipe)


@engine
def pipeline_1f1b() -> None:
    pipelined(Schedule1F1B)


@engine
def pipeline_summed() -> None:
    pipelined(ScheduleGPipe, scale_grads=False)
