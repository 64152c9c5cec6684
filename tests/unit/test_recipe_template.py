"""`init` by inspection: what is seen in a repository, and that the recipe for it loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.core.errors import BisectTrainError
from bisect_train.recipe import Findings, Recipe, inspect_tree, load_recipe, recipe_template

TRAIN = """
import argparse
import torch
import wandb
parser.add_argument("--config")
optimizer = torch.optim.AdamW(model.parameters())
loss.backward()
if __name__ == "__main__":
    main()
"""

FILES = {
    ".gitignore": "# data\n/data/\nwandb/\nout\n*.pt\nmissing_data/\n!keep\ncheckpoints/base.pt\n",
    "README.md": "hello",
    "model.py": "import torch\n",
    "train.py": TRAIN,
    "tools/train_tokenizer.py": "x = 1\nif __name__ == '__main__':\n    pass\n",
    "tests/test_train.py": TRAIN,
    "configs/train.yaml": "lr: 1\n",
    "configs/model.yaml": "n: 1\n",
    ".pre-commit-config.yaml": "",
    "package.json": "{}",
    "pyproject.toml": "",
}


def load_template(tmp_path: Path, findings: Findings) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_template(findings), encoding="utf-8")
    return load_recipe(path)


def test_inspect_tree_finds_script_config_and_data(tmp_path: Path) -> None:
    untracked = ["data/train.bin", "out/log.txt", "checkpoints/base.pt", "wandb/x"]
    findings = inspect_tree(list(FILES), FILES.__getitem__, untracked=untracked)
    assert findings.scripts[0] == "train.py"
    assert "tests/test_train.py" not in findings.scripts
    assert findings.config_files == ("configs/train.yaml", "configs/model.yaml")
    assert findings.config_flag == "--config={config}"
    assert findings.data_folders == ("data", "checkpoints/base.pt")
    assert (findings.uses_wandb, findings.uses_torchrun, findings.has_overrides) == (True, False, False)
    recipe = load_template(tmp_path, findings)
    assert recipe.command == ("python", "train.py", "--config={config}")
    assert recipe.config.file == "configs/train.yaml"
    assert [link.source for link in recipe.data.links] == ["data", "checkpoints/base.pt"]
    assert recipe.data.env == (("WANDB_MODE", "disabled"),)


def test_inspect_tree_looks_for_ignored_data_among_the_files_given() -> None:
    assert inspect_tree([*FILES, "data/a.bin"], lambda path: FILES.get(path, "")).data_folders == ("data",)
    assert inspect_tree(list(FILES), FILES.__getitem__).data_folders == ()


def test_distributed_script_with_hydra_starts_under_torchrun(tmp_path: Path) -> None:
    text = "import hydra\nimport os\nrank = os.environ['LOCAL_RANK']\nloss.backward()\noptimizer.zero_grad()\n"
    findings = inspect_tree(["src/train.py"], lambda _: text)
    recipe = load_template(tmp_path, findings)
    expected = ("torchrun", "--nproc-per-node={ranks}", "--master-port={port}", "src/train.py", "{overrides}")
    assert recipe.command == expected
    assert recipe.config.override == "{key}={value}"


def test_unreadable_files_are_passed_over(tmp_path: Path) -> None:
    def read(path: str) -> str:
        raise {"a.py": OSError("x"), "b.py": UnicodeDecodeError("utf-8", b"", 0, 1, "x")}.get(path, BisectTrainError("x"))

    findings = inspect_tree(["a.py", "b.py", "train.py", ".gitignore"], read)
    assert findings.scripts == ("train.py",)
    assert load_template(tmp_path, findings).command == ("python", "train.py")


def test_empty_tree_gives_a_recipe_that_says_what_to_correct(tmp_path: Path) -> None:
    findings = inspect_tree([], lambda path: pytest.fail(path))
    assert findings == Findings()
    assert "correct this line" in recipe_template(findings)
    assert load_template(tmp_path, findings).command == ("python", "train.py")


def test_program_that_nothing_of_torch_is_in_runs_to_its_end(tmp_path: Path) -> None:
    source = "import numpy\nfor step in range(9):\n    loss = step\nif __name__ == '__main__':\n    pass\n"
    files = {"train.py": source, "level.py": "LEVEL = 1\n"}
    plain = inspect_tree(list(files), files.__getitem__)
    assert plain.scripts == ("train.py",) and not plain.has_steps
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_template(plain))
    assert load_recipe(path).shrink.steps == (None,)
    files["model.py"] = "from lightning import LightningModule\n"
    assert inspect_tree(list(files), files.__getitem__).has_steps


def test_template_says_which_steps_are_taken_and_its_pattern_reads_numbers() -> None:
    text = recipe_template(Findings())
    assert "The cheapest rung whose ends differ is used" in text
    example = next(line for line in text.splitlines() if "pattern:" in line).removeprefix("#")
    pattern = yaml.safe_load(f"metrics:\n{example}")["metrics"]["val_loss"]["pattern"]
    for printed in ("1.5e-3", "nan", "inf", "-2.25"):
        found = re.search(pattern, f"val loss {printed}")
        assert found is not None and found["value"] == printed


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=12)


@given(
    scripts=st.lists(NAMES.map(lambda name: f"{name}.py"), max_size=3),
    configs=st.lists(NAMES.map(lambda name: f"configs/{name}.yaml"), max_size=3),
    data=st.lists(NAMES.map(lambda name: f"data_{name}"), max_size=2, unique=True),
    flags=st.tuples(*[st.booleans()] * 5),
)
def test_template_always_loads(
    tmp_path_factory: pytest.TempPathFactory,
    scripts: list[str],
    configs: list[str],
    data: list[str],
    flags: tuple[bool, ...],
) -> None:
    flag = "--config={config}" if flags[0] else ""
    findings = Findings(tuple(scripts), tuple(configs), flag, flags[1], tuple(data), flags[2], flags[3], flags[4])
    recipe = load_template(tmp_path_factory.mktemp("recipe"), findings)
    assert (scripts[0] if scripts else "train.py") in recipe.command
    assert [link.source for link in recipe.data.links] == data
