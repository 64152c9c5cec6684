"""Engines of one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from common import NUM_STEPS, Engine, adamw, build, grad_norm, groups_of, loss_of, norm_of, rates, say, say_digest, schedule
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

ENGINES: dict[str, Engine] = {}
KEPT: dict[str, nn.Module] = {}  # what lives as long as the process, as a script's own variables do


def engine(function: Engine) -> Engine:
    ENGINES[function.__name__] = function
    return function


def say_step(step: int, loss: float, model: nn.Module, *optimizers: Any, clip: float | None = None, **more: Any) -> None:
    """Print a step; call it after the optimizers stepped, while the gradients are there."""
    params = norm_of(model.parameters())
    say(step, loss=loss, grad_norm=grad_norm(model), clip_norm=clip, lr=rates(*optimizers), param_norm=params, **more)


def train(model: nn.Module, optimizer: Any, *, forward: Any = None, step_with: Callable[[], Any] | None = None) -> None:
    """Train in the plain way: clipping, a schedule, two micro-batches."""
    plan = schedule(optimizer)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in range(2):
            loss = loss_of(model if forward is None else forward, step, part=part, parts=2) / 2
            loss.backward()
            total += loss.item()
        clip = clip_grad_norm_(model.parameters(), 0.5).item()
        (step_with or optimizer.step)()
        say_step(step, total, model, optimizer, clip=clip)
        plan.step()
    say_digest(model.state_dict(), optimizer.state_dict())


@engine
def plain() -> None:
    model = build()
    train(model, adamw(model))


@engine
def gan() -> None:
    """Two optimizers alternate; one iteration is two optimizer steps."""
    maker, judge = build(), nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    first, second = torch.optim.Adam(judge.parameters(), lr=0.01), torch.optim.Adam(maker.parameters(), lr=0.02)
    for step in range(NUM_STEPS // 2):
        x = torch.randn(4, 6)
        fake = maker(x)
        second_loss = judge(torch.randn(4, 3)).mean() - judge(fake.detach()).mean()
        first.zero_grad()
        second_loss.backward()
        first.step()
        say(2 * step, loss=second_loss.item(), lr=[0.01], grad_norm=grad_norm(judge), param_norm=norm_of(judge.parameters()))
        maker_loss = judge(fake).mean()
        second.zero_grad()
        maker_loss.backward()
        second.step()
        say(2 * step + 1, loss=maker_loss.item(), lr=[0.02], grad_norm=grad_norm(maker), param_norm=norm_of(maker.parameters()))
    say_digest(maker.state_dict(), judge.state_dict())


def halves(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices and AdamW for the rest."""
    params = list(model.parameters())
    matrices, rest = [p for p in params if p.dim() == 2], [p for p in params if p.dim() != 2]
    muon = getattr(torch.optim, "Muon", torch.optim.SGD)
    return [muon(matrices, lr=0.01), torch.optim.AdamW(rest, lr=0.02)]


def never(step: int) -> bool:
    return False


def train_parts(
    model: nn.Module,
    optimizers: list[Any],
    zero: Callable[[], None],
    step_all: Callable[[], Any],
    is_skipped: Callable[[int], bool] = never,
) -> None:
    for step in range(NUM_STEPS):
        zero()
        loss = loss_of(model, step)
        loss.backward()
        clip = clip_grad_norm_(model.parameters(), 0.5).item()
        step_all()
        say_step(step, loss.item(), model, *optimizers, clip=clip, skipped=is_skipped(step))
    say_digest(model.state_dict())


@engine
def muon_and_adamw() -> None:
    """Both are stepped in each iteration, as nanochat does."""
    model = build()
    parts = halves(model)
    train_parts(model, parts, model.zero_grad, lambda: [part.step() for part in parts])


class Chained:
    """As Megatron's ChainedOptimizer: no optimizer of torch, holds several."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        self.is_skipped_at: int | None = None
        self.num_calls = 0

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad()

    def step(self) -> bool:
        self.num_calls += 1
        if self.num_calls - 1 == self.is_skipped_at:
            return False
        for part in self.parts:
            part.step()
        return True


@engine
def chained() -> None:
    model = build()
    whole = Chained(halves(model))
    train_parts(model, list(whole.parts), whole.zero_grad, whole.step)


@engine
def chained_skipping() -> None:
    """The optimizer leaves a step out by itself, without a word to torch; a recipe names its step function."""
    model = build()
    whole = Chained(halves(model))
    whole.is_skipped_at = 1
    train_parts(model, list(whole.parts), whole.zero_grad, whole.step, is_skipped=lambda step: step == 1)


class Container(torch.optim.Optimizer):
    """As torchtitan's OptimizersContainer: an optimizer that holds one per part of the model."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        params = [p for part in parts for group in part.param_groups for p in group["params"]]
        super().__init__(params, {"lr": 99.0})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)


@engine
def container() -> None:
    model = build()
    whole = Container(halves(model))
    train_parts(model, whole.parts, whole.zero_grad, whole.step)


class InBackward(Container):
    """As torchtitan's OptimizersInBackwardContainer: a parameter's optimizer steps as soon as its gradient is there."""

    def __init__(self, model: nn.Module) -> None:
        made = {param: torch.optim.SGD([param], lr=0.01) for param in model.parameters()}
        self.squares: list[float] = []

        def step_now(param: torch.Tensor) -> None:
            assert param.grad is not None
            self.squares.append(float(param.grad.double().pow(2).sum()))
            made[param].step()
            made[param].zero_grad()

        for param in model.parameters():
            param.register_post_accumulate_grad_hook(step_now)
        super().__init__(list(made.values()))

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pass

    def zero_grad(self, set_to_none: bool = True) -> None:
        pass


@engine
def in_backward() -> None:
    model = build()
    whole = InBackward(model)
    for step in range(NUM_STEPS):
        whole.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        whole.step()
        norm = math.sqrt(sum(whole.squares))
        whole.squares.clear()
        say(step, loss=loss.item(), grad_norm=norm, lr=[0.01] * 8, param_norm=norm_of(model.parameters()), missing_grads=0)
    say_digest(model.state_dict())


class Swapping:
    """As DeepSpeed's ZeRO: a step for each group, alone in the optimizer meanwhile (1, 2), or with lent parameters (3)."""

    def __init__(self, inner: torch.optim.Optimizer, stage: int) -> None:
        self.inner = inner
        self.stage = stage
        self.lent = [list(group["params"]) for group in inner.param_groups]
        self.clear()

    def clear(self) -> None:
        if self.stage == 3:
            for group in self.inner.param_groups:
                group["params"] = []

    def step(self) -> None:
        groups = self.inner.param_groups
        for group, params in zip(groups, self.lent, strict=True):
            group["params"] = params
            if self.stage == 3:
                self.inner.step()
                group["params"] = []
            else:
                self.inner.param_groups = [group]
                self.inner.step()
                self.inner.param_groups = groups


@engine
def swapped_groups() -> None:
    model = build()
    inner = adamw(model)
    train_parts(model, [inner], model.zero_grad, Swapping(inner, 2).step)


@engine
def lent_params() -> None:
    model = build()
    inner = adamw(model)
    train_parts(model, [inner], model.zero_grad, Swapping(inner, 3).step)


@engine
def closure() -> None:
    """As Lightning does: the training step runs inside `optimizer.step(closure)`, after batches that only accumulate."""
    model = build()
    optimizer = adamw(model)
    plan = schedule(optimizer)
    totals: list[float] = []
    clips: list[float] = []

    def run(step: int, part: int) -> torch.Tensor:
        loss = loss_of(model, step, part=part, parts=2) / 2
        if part == 0:
            optimizer.zero_grad()
        loss.backward()
        totals.append(loss.item())
        if part == 1:
            clips.append(clip_grad_norm_(model.parameters(), 0.5).item())
        return loss

    for step in range(NUM_STEPS):
        run(step, 0)
        optimizer.step(closure=lambda step=step: run(step, 1))  # type: ignore[misc]
        say_step(step, sum(totals), model, optimizer, clip=clips[-1])
        totals.clear()
        plan.step()
    say_digest(model.state_dict(), optimizer.state_dict())


@engine
def lbfgs() -> None:
    """The closure is evaluated several times in a step; its first value is the step's loss."""
    model = build()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    seen: list[float] = []

    def run(step: int) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for part in range(2):
            loss = loss_of(model, step, part=part, parts=2) / 2
            loss.backward()
            total += loss.detach()
        seen.append(total.item())
        return total

    for step in range(NUM_STEPS):
        seen.clear()
        optimizer.step(lambda step=step: run(step))  # type: ignore[misc]
        say(step, loss=seen[0], lr=rates(optimizer), param_norm=norm_of(model.parameters()))
    say_digest(model.state_dict())


def train_scaled(model: nn.Module, optimizers: list[Any]) -> None:
    """Two micro-batches, a gradient scaler, infinite gradients at step 1."""
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(NUM_STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        total = 0.0
        for part in range(2):
            loss = loss_of(model, step, part=part, parts=2) / 2
            if step == 1:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            total += loss.item()
        clips = []
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        clips.append(clip_grad_norm_(model.parameters(), 0.5).item())
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        say_step(step, total, model, *optimizers, clip=clips[0], skipped=step == 1)
    say_digest(model.state_dict(), [optimizer.state_dict() for optimizer in optimizers])


@engine
def scaler() -> None:
    model = build()
    train_scaled(model, [adamw(model)])


@engine
def scaler_two() -> None:
    model = build()
    train_scaled(model, halves(model))


@engine
def scaler_fused() -> None:
    """The fused optimizer unscales and skips by itself: its step is called even with infinite gradients."""
    model = build()
    optimizer = torch.optim.AdamW(groups_of(model), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step) * (float("inf") if step == 1 else 1.0)
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        norm = grad_norm(model) / scale
        scaler.step(optimizer)
        scaler.update()
        more = {"lr": rates(optimizer), "param_norm": norm_of(model.parameters()), "skipped": step == 1}
        say(step, loss=loss.item(), grad_norm=norm, **more)
    say_digest(model.state_dict(), optimizer.state_dict())


class Foreign:
    """No optimizer of torch: plain gradient descent, as hand-written ones are."""

    def __init__(self, params: Iterable[torch.Tensor]) -> None:
        self.params = list(params)

    @torch.no_grad()
    def step(self) -> None:
        for param in self.params:
            if param.grad is not None:
                param -= 0.01 * param.grad

    def clear(self) -> None:
        for param in self.params:
            param.grad = None


def train_foreign(model: nn.Module, optimizer: Foreign, zero: Callable[[], None], *, first: bool) -> None:
    for step in range(NUM_STEPS):
        if first:
            zero()
        total = 0.0
        for part in range(2):
            loss = loss_of(model, step, part=part, parts=2) / 2
            loss.backward()
            total += loss.item()
        clip = clip_grad_norm_(model.parameters(), 0.5).item()
        optimizer.step()
        say_step(step, total, model, clip=clip)
        if not first:
            zero()
    say_digest(model.state_dict())


@engine
def foreign() -> None:
    """Steps are told by `zero_grad`, called at the end of the iteration."""
    model = build()
    train_foreign(model, Foreign(model.parameters()), model.zero_grad, first=False)


@engine
def foreign_zero_first() -> None:
    """Steps are told by `zero_grad`, called before the forward; the last one ends with the program."""
    model = KEPT.setdefault("model", build())
    train_foreign(model, Foreign(model.parameters()), model.zero_grad, first=True)


@engine
def foreign_named() -> None:
    """Nothing of torch tells its steps: a recipe names the step function."""
    model = build()
    optimizer = Foreign(model.parameters())
    train_foreign(model, optimizer, optimizer.clear, first=False)


class Checkpointed(nn.Module):
    """Each half is run again in the backward pass."""

    def __init__(self, *, is_reentrant: bool) -> None:
        super().__init__()
        self.net = build()
        self.is_reentrant = is_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_reentrant:
            x = x.requires_grad_()
        hidden = checkpoint(lambda y: self.net.norm(self.net.first(y)), x, use_reentrant=self.is_reentrant)
        hidden = checkpoint(lambda y: torch.relu(self.net.second(torch.relu(y))), hidden, use_reentrant=self.is_reentrant)
        out: torch.Tensor = self.net.last(hidden)
        return out


@engine
def checkpointed() -> None:
    model = Checkpointed(is_reentrant=False)
    train(model, adamw(model))


@engine
def checkpointed_reentrant() -> None:
    model = Checkpointed(is_reentrant=True)
    train(model, adamw(model))


@engine
def checkpointed_root() -> None:
    """The outermost module itself is run again in the backward pass; its batch is one batch."""
    model = build()
    train(model, adamw(model), forward=lambda x: checkpoint(model, x, use_reentrant=False))


@engine
def checkpointed_root_reentrant() -> None:
    model = build()
    train(model, adamw(model), forward=lambda x: checkpoint(model, x.requires_grad_(), use_reentrant=True))


def counted(program: Callable[[], None]) -> None:
    """Run a program and print how many compilations, graphs and graph breaks torch.compile made."""
    from torch._dynamo.utils import counters, get_compilation_metrics

    counters.clear()
    program()
    breaks = sum(counters["graph_break"].values())
    say(-1, compilations=len(get_compilation_metrics()), graphs=counters["stats"]["unique_graphs"], breaks=breaks)


@engine
def compiled_model() -> None:
    model = build()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    counted(lambda: train(model, adamw(model), forward=compiled))


@engine
def compiled_step() -> None:
    """The optimizer's step is compiled, as torch's own tutorial does."""
    model = build()
    optimizer = torch.optim.AdamW(groups_of(model), foreach=True, capturable=False)
    step_with = torch.compile(optimizer.step, backend="eager")
    counted(lambda: train(model, optimizer, step_with=step_with))


@engine
def compiled_step_inside() -> None:
    """The step is called in a compiled function: torch's hooks are traced, and not called when it runs."""
    model = build()
    optimizer = torch.optim.AdamW(groups_of(model))

    @torch.compile(backend="eager")
    def step_with() -> None:
        optimizer.step()

    def run() -> None:
        for step in range(NUM_STEPS):
            loss = loss_of(model, step)
            loss.backward()
            step_with()
            say_step(step, loss.item(), model, optimizer)
            optimizer.zero_grad()
        say_digest(model.state_dict())

    counted(run)


class Descent(torch.optim.Optimizer):
    """An optimizer that compiles as one graph."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.01})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                param.data.add_(param.grad, alpha=-group["lr"])


@engine
def compiled_step_whole() -> None:
    """As above, and no graph break is allowed."""
    model = build()
    optimizer = Descent(list(model.parameters()))

    @torch.compile(fullgraph=True, backend="eager")
    def step_with() -> None:
        optimizer.step()

    def run() -> None:
        for step in range(NUM_STEPS):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            step_with()
            say_step(step, loss.item(), model, optimizer)
        say_digest(model.state_dict())

    counted(run)


@engine
def compiled_clipping() -> None:
    model = build()
    optimizer = torch.optim.AdamW(groups_of(model))
    params = list(model.parameters())

    @torch.compile(backend="eager")
    def clip() -> torch.Tensor:
        return clip_grad_norm_(params, 0.5)

    def run() -> None:
        for step in range(NUM_STEPS):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            clip()
            optimizer.step()
            say_step(step, loss.item(), model, optimizer)
        say_digest(model.state_dict())

    counted(run)


@engine
def compiled_iteration() -> None:
    """Forward, backward and step in one compiled function."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.compile(backend="eager")
    def iterate(step: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        return loss

    def run() -> None:
        for step in range(NUM_STEPS):
            loss = iterate(step)
            say_step(step, loss.item(), model, optimizer)
        say_digest(model.state_dict())

    counted(run)
