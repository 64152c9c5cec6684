"""A fork of litgpt: a learning rate that is asked for a step where it counts iterations."""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role
from tests.frameworks.app import App, Asked, edit, note

PRETRAIN = "litgpt/pretrain.py"
MADE_UP = "litgpt/data/made_up.py"

LITGPT = App(
    name="litgpt",
    packages=("litgpt", "lightning"),
    history=(
        note("readme: how it is started", "`python -m litgpt pretrain pythia-14m` trains on a made-up language."),
        edit("data: say how it is made", MADE_UP, "has three that may follow it.", "is followed by one of three."),
        edit("pretrain: say which words", PRETRAIN, '"Verifying settings ..."', '"Verifying the settings ..."'),
        edit(
            "data: a name for the language",
            MADE_UP,
            "        followers = torch",
            "        # the language\n        followers = torch",
        ),
        note("readme: logs", "Losses are in `out/pretrain/logs/csv`."),
        edit("pretrain: a shorter line", PRETRAIN, '"| Performance"', '"| Speed"'),
        edit(
            "pretrain: the rate of a step",
            PRETRAIN,
            'get_lr(optimizer.defaults["lr"], state["iter_num"], warmup_iters',
            'get_lr(optimizer.defaults["lr"], state["step_count"], warmup_iters',
            role=Role.CULPRIT,
        ),
        note("readme: the rate", "The learning rate is that of an optimizer step."),
        edit("data: texts by their number", MADE_UP, '"""How many there are;', '"""Number of texts;'),
        edit("pretrain: memory", PRETRAIN, '"| Memory Usage"', '"| Memory"'),
        note("readme: seeds", "`--seed=7` runs it with another seed."),
        edit(
            "data: say what is held back", MADE_UP, "Return batches of what is held back.", "Return batches of the first texts."
        ),
    ),
    asked=(Asked("commits", ("--steps", "12")),),
    losses={
        "printed_loss": "{}",
        "csv": '{from: csv, column: loss, file: "{out}/**/metrics.csv"}',
    },
    arguments=("--train.max_tokens=3072",),
    copied="litgpt",
    first=(
        Replace(
            PRETRAIN,
            "from litgpt.data import DataModule, TinyLlama",
            "from litgpt.data import DataModule\nfrom litgpt.data.made_up import MadeUp, digest",
        ),
        Replace(PRETRAIN, "data = TinyLlama() if", "data = MadeUp() if"),
        Replace(PRETRAIN, "lr_warmup_steps=2000,", "lr_warmup_steps=8,\n        max_seq_length=64,"),
        Replace(
            PRETRAIN,
            "    # Save final checkpoint\n",
            '    fabric.print("parameters", digest(model))\n    # Save final checkpoint\n',
        ),
    ),
    tolerance=1e-6,  # it takes the mean of micro-batches
)
