"""A program around accelerate's Accelerator: points that are scaled twice."""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.frameworks.app import App, Asked, edit, note

ACCELERATE = App(
    name="accelerate",
    packages=("accelerate",),
    history=(
        note("readme: how it is started", "`accelerate launch --cpu train.py` trains on this machine."),
        edit("options: say whose seed it is", "train.py", '"--seed", type=int', '"--seed", help="of everything", type=int'),
        edit("data: say where it comes from", "train.py", "Return points in 16 dimensions, and", "Return made-up points, and"),
        edit("options: say what the momentum is", "train.py", '"--momentum", type', '"--momentum", help="of SGD", type'),
        edit("train: name the network", "train.py", "    model = nn.Seq", "    # two layers\n    model = nn.Seq"),
        note("readme: trackers", "Losses go to TensorBoard, below `--project_dir`."),
        Step(
            "data: scale where it is loaded",
            (
                Replace("train.py", "    return TensorDataset(points, (points", "    targets = (points"),
                Replace("train.py", ".argmax(dim=1))\n", ".argmax(dim=1)\n    return TensorDataset(points * SCALE, targets)\n"),
            ),
            role=Role.CULPRIT,
        ),
        edit("options: say what the width is", "train.py", '"--width", type', '"--width", help="of the hidden layer", type'),
        note("readme: accumulation", "`--accumulation=4` takes larger batches."),
        edit("options: the width is a power of two", "train.py", "default=32)", "default=2**5)"),
        edit(
            "train: losses by their own name",
            "train.py",
            "    losses, step = [], 0\n",
            "    losses: list[float] = []\n    step = 0\n",
        ),
        note("readme: seeds", "`--seed=7` runs it with another seed."),
    ),
    asked=(Asked("commits", ("--steps", "20")),),
    losses={"board": '{from: tensorboard, tag: train/loss, file: "{out}/**/events.*"}'},
    arguments=("--project_dir={out}",),
)
