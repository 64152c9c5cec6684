"""`init` and `recipes` as a user starts them: a tree in the style of a framework is told, and its recipe proved by a run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from bisect_train.cli.asked import Asked
from bisect_train.cli.data_ends import snapshot_without_data
from bisect_train.cli.first_probe import lacks_of
from bisect_train.recipe import Recipe, load_recipe, preset_names
from tests.support.command_bench import Bench
from tests.support.command_line import CommandLine
from tests.support.git_repos import UserRepo, files_of

TRAIN = """
import os
import torch
import wandb

dataset, device, dtype, compile = 'none', 'cuda', 'float16', True
gradient_accumulation_steps = 5
n_layer = n_head = n_embd = block_size = batch_size = eval_iters = eval_interval = log_interval = 7
device = 'cuda'
dtype = 'float16'
exec(open('configurator.py').read())
assert device == 'cpu' and dtype == 'float32' and not compile and gradient_accumulation_steps == 1
ids = torch.tensor(list(open(f'data/{dataset}/train.bin', 'rb').read())).float()
torch.manual_seed(1337)
model = torch.nn.Sequential(torch.nn.Linear(n_embd, n_embd), torch.nn.Linear(n_embd, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
wandb.init(project='x')
for iter_num in range(100):
    loss = model(torch.randn(batch_size, n_embd) + ids.mean()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    wandb.log({'loss': loss.item()})
    print(f"iter {iter_num}: loss {loss.item():.4f}, time 1.00ms")
"""
CONFIGURATOR = """
import sys
for arg in sys.argv[1:]:
    if arg.startswith('--'):
        key, value = arg[2:].split('=', 1)
        assert key in globals(), key
        globals()[key] = {'False': False, 'True': True}.get(value, int(value) if value.isdigit() else value)
    else:
        exec(open(arg).read())
"""


@pytest.fixture
def user(tmp_path: Path) -> UserRepo:
    user = UserRepo.create(tmp_path / "repo")
    user.commit(
        {
            "train.py": TRAIN,
            "configurator.py": CONFIGURATOR,
            "model.py": "",
            "config/train_words.py": "dataset = 'words'\n",
            ".gitignore": "*.bin\n",
        }
    )
    user.write("data/words/train.bin", b"some words")
    return user


def test_data_that_git_neither_tracks_nor_ignores_is_no_part_of_the_working_tree(user: UserRepo, tmp_path: Path) -> None:
    user.write("data/words/meta.pkl", b"a vocabulary")
    user.write("notes.txt", "a note")
    shell = CommandLine(user.path, tmp_path / "home")
    status, out = shell.run("init", "--no-prove")
    assert status == 0, out
    assert '- "data/words/meta.pkl"' in (user.path / "bisect-train.yaml").read_text()
    repository = user.open(tmp_path / "home")
    commit = snapshot_without_data(Asked(good_data=("corpus/a=/data/a",)), repository)
    found = set(files_of(repository.mirror, commit))
    assert "data/words/meta.pkl" not in found
    assert {"notes.txt", "bisect-train.yaml", "train.py"} <= found


def test_known_repository_gets_a_recipe_that_is_proved_by_a_run(user: UserRepo, tmp_path: Path) -> None:
    shell = CommandLine(user.path, tmp_path / "home")
    status, out = shell.run("init")
    assert status == 0, out
    assert "this looks like nanogpt: train.py, configurator.py, model.py" in out
    assert "proof  5 steps in" in out and "loss" in out
    if importlib.util.find_spec("wandb") is None:
        assert "with stand-ins: wandb (stubs)" in out
    recipe = load_recipe(user.path / "bisect-train.yaml")
    assert recipe.config.file == "config/train_words.py" and recipe.data.links[0].target == "data/words/train.bin"


def test_recipe_that_does_not_run_is_told(tmp_path: Path) -> None:
    user = UserRepo.create(tmp_path / "repo")
    user.commit({"train.py": "import torch\nloss.backward()\nif __name__ == '__main__':\n    pass\n"})
    status, out = CommandLine(user.path, tmp_path / "home").run("init")
    assert status == 1 and "FAIL" in out and "name 'loss' is not defined" in out and "bisect-train show" in out


def test_init_without_proof_writes_and_runs_nothing(user: UserRepo, tmp_path: Path) -> None:
    shell = CommandLine(user.path, tmp_path / "home")
    status, out = shell.run("init", "--no-prove", "--output", str(tmp_path / "own.yaml"))
    assert status == 0 and "wrote" in out and "proof " not in out
    assert load_recipe(tmp_path / "own.yaml").whens


def test_recipes_are_listed_and_shown(bench: Bench) -> None:
    out = bench.succeed("recipes")
    assert all(f"{name} " in out for name in preset_names()) and "needs 1 GPU" not in out.splitlines()[0]
    assert "\nextends:" not in bench.succeed("recipes", "show", "nanogpt")
    assert bench.succeed("recipes", "show", "nanogpt").startswith("# nanoGPT")
    assert "did you mean 'nanochat'" in bench.refuse("recipes", "show", "nanochatt")


def test_preset_may_be_named_as_the_recipe(bench: Bench) -> None:
    assert "there is no preset 'nosuch'" in bench.refuse("run", "--good", "HEAD~1", "--recipe", "nosuch")
    assert "there is no such recipe" in bench.refuse("run", "--good", "HEAD~1", "--recipe", "nosuch.yaml")
    bench.monkeypatch.setenv("HOME", "/nonexistent")
    assert "/nonexistent/.cache/nanochat" in bench.refuse("run", "--good", "HEAD~1", "--recipe", "nanochat")


def test_what_a_machine_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    recipe = Recipe(needs_modules=("json", "absent_1", "absent_2"), stubs=("absent_2",), needs_gpus=2)
    assert lacks_of(recipe, sys.executable) == ("the module absent_1", "2 GPUs")
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 'GPU 0: one'\necho 'GPU 1: another'\n")
    driver.chmod(0o755)
    assert lacks_of(recipe, sys.executable) == ("the module absent_1",)
    driver.write_text("#!/bin/sh\necho 'no devices'\nexit 9\n")
    assert lacks_of(Recipe(needs_gpus=1), sys.executable) == ("1 GPU",)
    assert lacks_of(Recipe(needs_gpus=1, shims=("cuda-as-cpu",)), sys.executable) == ()


def test_machine_that_lacks_something_is_no_failure_of_the_recipe(tmp_path: Path) -> None:
    user = UserRepo.create(tmp_path / "repo")
    user.commit({"pretrain_gpt.py": "import torch\n", "megatron/core/a.py": ""})
    shell = CommandLine(user.path, tmp_path / "home", {"PATH": str(tmp_path / "bin") + ":/usr/bin:/bin"})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    status, out = shell.run("init")
    assert status == 0 and "this looks like megatron-lm" in out and "not run, this machine lacks 1 GPU" in out
