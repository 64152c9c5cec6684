"""A DeepSpeed program on two ranks under ZeRO stage 1: a warm-up that got ten times as long in the JSON file."""

from __future__ import annotations

from bisect_train.demo.history.steps import Role
from tests.frameworks.app import App, Asked, edit, note

CONFIG = "ds_config.json"

DEEPSPEED = App(
    name="deepspeed",
    packages=("deepspeed",),
    history=(
        note("readme: how it is started", "`deepspeed train.py --deepspeed_config=ds_config.json` trains on all GPUs."),
        edit("data: say where it comes from", "train.py", "Return points in 16 dimensions, and", "Return made-up points, and"),
        edit("config: gradients are clipped by norm", CONFIG, '"gradient_clipping": 1.0,', '"gradient_clipping": 1.00,'),
        edit("options: say what the width is", "train.py", '"--width", type', '"--width", help="of the hidden layers", type'),
        note("readme: batches", "A step takes 16 rows for each rank, twice."),
        edit("train: a comment", "train.py", "    order = torch.Gen", "    # the same on all ranks\n    order = torch.Gen"),
        edit(
            "config: a warm-up for longer runs",
            CONFIG,
            '"warmup_num_steps": 10,',
            '"warmup_num_steps": 100,',
            role=Role.CULPRIT,
        ),
        note("readme: the schedule", "The learning rate warms up linearly."),
        edit("train: the docstring of main", "train.py", '    """Train."""', '    """Train on all ranks."""'),
        edit("options: say whose seed it is", "train.py", '"--seed", type=int', '"--seed", help="of everything", type=int'),
        edit("data: name the directions", "train.py", "    directions = torch", "    # of the classes\n    directions = torch"),
        note("readme: seeds", "`--seed=7` runs it with another seed."),
    ),
    asked=(Asked("commits", ("--steps", "20")),),
    losses={"printed_mean": "{pattern: 'step (?P<step>[0-9]+) loss (?P<value>[-+.0-9e]+)'}"},
    ranks=2,
    tolerance=1e-6,  # it takes the mean over ranks
)
