"""`init` by inspection: of which preset small trees in the style of each framework are, and that their recipes load."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from bisect_train.core.changes import DataLink
from bisect_train.recipe import Recipe, Tree, find_rest, load_recipe, preset_names, preset_template, recognise

LOOP = "optimizer = torch.optim.SGD(model.parameters())\nloss.backward()\nif __name__ == '__main__':\n    main()\n"
TREES: dict[str, dict[str, str]] = {
    "nanogpt": {"train.py": "exec(open('configurator.py').read())\n" + LOOP, "configurator.py": "", "model.py": ""},
    "nanochat": {"scripts/base_train.py": LOOP, "nanochat/gpt.py": "", "nanochat/common.py": ""},
    "torchtitan": {"torchtitan/train.py": LOOP, "run_train.sh": "torchrun\n"},
    "megatron-lm": {"pretrain_gpt.py": LOOP, "megatron/core/x.py": ""},
    "vescale": {"vescale/x.py": "", "legacy/examples/nanogpt_4D_finetune/finetune_4D.py": LOOP},
    "veomni": {"veomni/x.py": "", "tasks/train_text.py": LOOP},
    "litgpt": {"litgpt/pretrain.py": LOOP, "litgpt/model.py": ""},
    "deepspeed": {
        "run/train.py": "engine, *_ = deepspeed.initialize(model=model)\n",
        "run/ds.json": '{"train_batch_size": 8}',
        "a.json": "{}",
    },
    "hf-trainer": {"finetune.py": "arguments = TrainingArguments(output_dir='x')\nTrainer(model, arguments).train()\n"},
    "accelerate": {"src/fit.py": "accelerator = Accelerator()\naccelerator.backward(loss)\n", "train.py": "x = 1\n"},
    "lightning": {"main.py": "class Net(pl.LightningModule):\n    pass\n"},
    "hydra": {"app/train.py": "@hydra.main(version_base=None, config_path='conf', config_name='train')\ndef main(): ...\n"},
}


def tree_of(files: dict[str, str], untracked: tuple[str, ...] = (), outside: tuple[str, ...] = (), **variables: str) -> Tree:
    return Tree(
        files=tuple(files),
        read=files.__getitem__,
        find=lambda pattern: [path for path in untracked if fnmatch(path, pattern)],
        is_there=outside.__contains__,
        variables=tuple(variables.items()),
    )


def recipe_for(tree: Tree, folder: Path) -> Recipe:
    first, *others = recognise(tree)
    path = folder / "recipe.yaml"
    path.write_text(preset_template(first, find_rest(first, tree), others=others), encoding="utf-8")
    return load_recipe(path)


def test_every_preset_has_a_tree_here() -> None:
    assert set(TREES) == set(preset_names())


@pytest.mark.parametrize("name", TREES)
def test_tree_in_the_style_of_a_framework_is_told(name: str, tmp_path: Path) -> None:
    tree = tree_of(TREES[name])
    found = recognise(tree)
    assert [item.name for item in found][:1] == [name]
    assert all(sign in tree.files for sign in found[0].signs)
    recipe = recipe_for(tree, tmp_path)
    assert recipe.command and recipe.shrink.steps == found[0].recipe.shrink.steps
    assert (len(recipe.whens), recipe.stubs) == (len(found[0].recipe.whens), found[0].recipe.stubs)


@pytest.mark.parametrize("missing", [(name, path) for name, files in TREES.items() if len(files) > 1 for path in files])
def test_tree_that_lacks_a_sign_is_not_told(missing: tuple[str, str]) -> None:
    name, gone = missing
    kept = {path: text for path, text in TREES[name].items() if path != gone}
    is_sign = gone in {sign for item in recognise(tree_of(TREES[name])) if item.name == name for sign in item.signs}
    assert (name in [item.name for item in recognise(tree_of(kept))]) == (not is_sign)


def test_plain_script_is_of_no_preset() -> None:
    assert recognise(tree_of({"train.py": LOOP, "model.py": "", "config.yaml": "a: 1\n"})) == ()
    assert recognise(tree_of({})) == ()


def test_own_script_takes_the_place_of_the_presets(tmp_path: Path) -> None:
    assert "src/fit.py" in recipe_for(tree_of(TREES["accelerate"]), tmp_path).command
    hydra = recipe_for(tree_of(TREES["hydra"]), tmp_path)
    assert hydra.command[:2] == ("python", "app/train.py") and hydra.config.hydra == "app/conf"
    deepspeed = recipe_for(tree_of(TREES["deepspeed"]), tmp_path)
    assert "run/train.py" in deepspeed.command and deepspeed.config.file == "run/ds.json"


def test_several_presets_are_said_the_most_particular_first() -> None:
    files = {"train.py": "@hydra.main()\nclass Net(LightningModule): ...\n"}
    found = recognise(tree_of(files))
    assert [item.name for item in found] == ["lightning", "hydra"]
    assert "signs of hydra, too" in preset_template(found[0], find_rest(found[0], tree_of(files)), others=found[1:])


CONFIGS = {
    "config/eval_big.py": "eval_only = True\ndataset = 'words'\n",
    "config/finetune_words.py": "init_from = 'gpt2'\ndataset = 'words'\n",
    "config/train_letters.py": "dataset = 'letters'\n",
    "config/train_words.py": 'dataset = "words"\n',
}


def test_nanogpt_gets_prepared_data_and_the_config_that_trains_on_them(tmp_path: Path) -> None:
    untracked = ("data/words/train.bin", "data/words/val.bin", "data/words/input.txt", "data/empty/val.bin")
    recipe = recipe_for(tree_of({**TREES["nanogpt"], **CONFIGS}, untracked), tmp_path)
    assert recipe.config.file == "config/train_words.py"
    assert [link.target for link in recipe.data.links] == ["data/words/train.bin", "data/words/val.bin"]
    assert recipe.command[:3] == ("python", "train.py", "{config}")


def test_nanogpt_without_prepared_data_is_told_what_to_do(tmp_path: Path) -> None:
    tree = tree_of({**TREES["nanogpt"], **CONFIGS})
    rest = find_rest(recognise(tree)[0], tree)
    assert rest.links == () and "prepare.py" in rest.notes[0]
    assert "# NOTE: no prepared data" in preset_template(recognise(tree)[0], rest)


@pytest.mark.parametrize("base", ["~/.cache/nanochat", "/srv/chat"])
def test_nanochat_gets_its_tokenizer_and_shards(base: str, tmp_path: Path) -> None:
    outside = (f"{base}/tokenizer", f"{base}/base_data_climbmix")
    variables = {} if base.startswith("~") else {"NANOCHAT_BASE_DIR": base}
    recipe = recipe_for(tree_of(TREES["nanochat"], (), outside, **variables), tmp_path)
    assert recipe.data.links == tuple(DataLink(path, f".nanochat/{Path(path).name}") for path in outside)
    assert dict(recipe.data.env)["NANOCHAT_BASE_DIR"] == ".nanochat"
    tree = tree_of(TREES["nanochat"], (), (f"{base}/tokenizer",), **variables)
    assert "no tokenizer and shards" in find_rest(recognise(tree)[0], tree).notes[0]
