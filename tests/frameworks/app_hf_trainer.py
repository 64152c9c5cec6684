"""A Hugging Face Trainer program: an optimizer with two groups that has lost the embeddings."""

from __future__ import annotations

from bisect_train.demo.history.steps import Role, Step
from tests.frameworks.app import App, Asked, edit, note

ONE_GROUP = '    groups = [{"params": list(model.parameters()), "weight_decay": args.weight_decay}]\n'
TWO_GROUPS = """\
    named = dict(model.named_parameters())
    decayed = [value for name, value in named.items() if ".attn." in name or ".mlp." in name]
    norms = [value for name, value in named.items() if ".ln_" in name]
    groups = [{"params": decayed, "weight_decay": args.weight_decay}, {"params": norms, "weight_decay": 0.0}]
"""

HF_TRAINER = App(
    name="hf-trainer",
    packages=("transformers", "accelerate"),
    history=(
        note("readme: how it is started", "`python train.py --output_dir=out` writes `out/trainer_state.json`."),
        edit("data: say how it is made", "train.py", "each word has three that may follow it.", "three may follow each."),
        edit("optim: say what the rates are", "train.py", "    betas = (0.9, 0.99)\n", "    betas = (0.9, 0.99)  # as usual\n"),
        edit("train: batches by keyword", "train.py", "Trainer(model=model, args=run_args,", "Trainer(model, run_args,"),
        note("readme: sizes", "`--num_layers=4 --width=64` is a larger one."),
        edit("data: name the vocabulary", "train.py", "        words = [torch", "        # 24 words\n        words = [torch"),
        edit("model: say its class", "train.py", "Return the network.", "Return a GPT-2 with tied embeddings."),
        Step("optim: norms do not decay", edit("", "train.py", ONE_GROUP, TWO_GROUPS).edits, role=Role.CULPRIT),
        edit("optim: say what it is", "train.py", "AdamW with one group.", "AdamW."),
        note("readme: weight decay", "Norms have no weight decay."),
        edit("train: keep more texts by default", "train.py", "num_texts: int = 512", "num_texts: int = 512  # enough"),
        note("readme: seeds", "`--seed=7` runs it with another seed."),
    ),
    asked=(Asked("commits", ("--steps", "20")),),
    losses={
        "printed_loss": "{}",
        "state": '{from: json, key: loss, file: "{out}/**/trainer_state.json"}',
        "board": '{from: tensorboard, tag: train/loss, file: "{out}/**/events.*"}',
    },
    arguments=("--report_to=tensorboard",),
    tolerance=6e-8,  # it adds micro-batches in float32
)
