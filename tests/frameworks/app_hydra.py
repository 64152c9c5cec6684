"""A Hydra program: the learning rate gets lost where the configs are put into another order."""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.frameworks.app import App, Asked, edit, note

KEYS = ("optim.lr=0.001", "optim.weight_decay=0.02", "model.dropout=0.12", "data.noise=0.29", "log_every=2")

HYDRA = App(
    name="hydra",
    packages=("hydra-core",),
    history=(
        note("readme: how it is started", "`python train.py model=large` takes another model."),
        edit("data: say what it returns", "train.py", "Return points in 16 dimensions, and", "Return points, and"),
        edit(
            "train: name the outputs",
            "train.py",
            "            loss = nn.functional.cross_entropy(model(points[rows]), targets[rows])\n",
            "            logits = model(points[rows])\n            loss = nn.functional.cross_entropy(logits, targets[rows])\n",
        ),
        edit("conf: a wider large model", "conf/model/large.yaml", "width: 128", "width: 192"),
        edit("optim: a shorter memory", "conf/optim/adamw.yaml", "[0.9, 0.99]", "[0.9, 0.98]", role=Role.DECOY),
        edit("log: five digits", "train.py", "loss %.4f", "loss %.5f"),
        Step(
            "conf: optimizers say what they are for",
            (
                Replace("conf/optim/adamw.yaml", "_target_", "# the default\n_target_"),
                Replace("conf/optim/adamw.yaml", "lr: 0.01\n", "lr: 0.001\n"),
                Replace("conf/optim/sgd.yaml", "_target_", "# for comparisons\n_target_"),
            ),
            role=Role.CULPRIT,
        ),
        note("readme: the optimizers", "`optim=sgd` trains with momentum."),
        edit("model: say its layers", "train.py", "Return the network.", "Return three layers."),
        edit("conf: sgd looks ahead", "conf/optim/sgd.yaml", "momentum: 0.9\n", "momentum: 0.9\nnesterov: true\n"),
        edit("train: take rows by index_select", "train.py", "model(points[rows])", "model(points.index_select(0, rows))"),
        note("readme: seeds", "`seed=7` runs it with another seed."),
    ),
    asked=(
        Asked("commits", ("--steps", "20")),
        Asked(
            "keys",
            (
                *("--only", "config", "--steps", "20", "--good-hydra", "config optim.lr=0.01"),
                *(
                    "--bad-hydra",
                    "config optim.lr=0.001 optim.weight_decay=0.02 model.dropout=0.12 data.noise=0.29 log_every=2",
                ),
            ),
            keys=("optim.lr",),
        ),
    ),
    losses={"history": '{from: jsonl, key: loss, file: "{out}/history.jsonl"}'},
)
