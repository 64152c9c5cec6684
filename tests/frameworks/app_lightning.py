"""A LightningCLI program: a warm-up in steps that becomes one in epochs."""

from __future__ import annotations

from bisect_train.demo.history.steps import Role
from tests.frameworks.app import App, Asked, edit, note

LIGHTNING = App(
    name="lightning",
    packages=("lightning",),
    history=(
        note("readme: how it is started", "`python train.py --trainer.max_steps=100` trains for longer."),
        edit("data: say how many there are", "train.py", "Points in 16 dimensions, and", "2048 points in 16 dimensions, and"),
        edit("model: the width first", "train.py", "width: int = 32, dropout", "width: int = 2**5, dropout"),
        edit("optim: one name for the rate", "train.py", "lr=self.hparams.lr,", 'lr=self.hparams["lr"],'),
        edit(
            "model: by keyword", "train.py", '"train_loss", loss, prog_bar=True', 'name="train_loss", value=loss, prog_bar=True'
        ),
        note("readme: logs", "Losses are in `lightning_logs/version_0/metrics.csv`."),
        edit(
            "validation: a shorter name",
            "train.py",
            "Log the loss of a batch that is not trained on.",
            "Log the loss of a batch.",
        ),
        edit(
            "optim: return lists, as elsewhere",
            "train.py",
            'return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}',
            "return [optimizer], [schedule]",
            role=Role.CULPRIT,
        ),
        edit("optim: say what is returned", "train.py", "Return optimizer and schedule.", "Return AdamW and its warm-up."),
        note("readme: the warm-up", "The learning rate warms up for `--model.warmup` steps."),
        edit("train: name the trainer", "train.py", "    cli.trainer.fit(", "    trainer = cli.trainer\n    trainer.fit("),
        note("readme: seeds", "`--seed_everything=7` runs it with another seed."),
    ),
    asked=(Asked("commits", ("--steps", "20")),),
    losses={"train_loss": '{from: csv, column: train_loss, file: "{out}/**/metrics.csv"}'},
    arguments=("--trainer.logger=CSVLogger", "--trainer.logger.save_dir={out}"),
)
