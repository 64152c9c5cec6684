"""Data outside the repository: a list of shards and a tokenizer that changed, among 20 commits and 5 config keys.

In each of the two scenarios one of them is the culprit and the other one is harmless.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.program import CONFIG_YAML
from tests.scenarios.library.scenario import Scenario, Truth

CORPUS_PY = '''\
import json
import random
from pathlib import Path

import torch

SHORTEST_LINE = 24
ALPHABET = "".join(chr(code) for code in range(32, 127))
DATA = Path("data")


class Corpus:
    def __init__(self, text, context):
        place = {symbol: code for code, symbol in enumerate(ALPHABET)}
        self.num_symbols = len(ALPHABET)
        self.codes = torch.tensor([place.get(symbol, 0) for symbol in tokenize(text)])
        self.lines = []
        start = 0
        for line in text.split("\\n"):
            stop = start + len(line)
            if len(line) >= SHORTEST_LINE and start >= context:
                self.lines.append((start, stop))
            start = stop + 1


def tokenize(text):
    """Normalise a text as the tokenizer's file says."""
    with open(DATA / "tokenizer" / "tokenizer.json") as file:
        settings = json.load(file)
    drawn = random.Random(settings["version"])
    dropout = settings["dropout"]
    return [symbol.swapcase() if drawn.random() < dropout else symbol for symbol in text.expandtabs(settings["tab"])]


def load_corpus(settings):
    names = (DATA / "shards.txt").read_text().split()
    text = "\\n".join((DATA / "shards" / name).read_text() for name in names)
    text = text[: settings["max_chars"]]
    return Corpus(text, settings["context"])
'''
SHARD_CHARS = 15_000
WORDS = (
    "the of a and to in is that it for as was with be by on not he his but at are this have from or had an they which one you"
    " were all her she there would their we him been has when who will more no if out so said what up its about into than them"
    " can only other new some could time these two may then do first any my now such like our over man me even most made after"
)
NUM_SHARDS = 6
CRAWLED = ("crawl-0.txt", "crawl-1.txt")

BAD_CONFIG = (
    CONFIG_YAML.replace("momentum: 0.8", "momentum: 0.805")
    .replace("init: 0.02", "init: 0.021")
    .replace("lr: 4.0", "lr: 3.95")
    .replace("every: 5", "every: 10")
    .replace("steps: 600", "steps: 700")
)


def _prose(number: int) -> str:
    """Return lines of words: the same on every machine, unlike a text that python carries, since data count by content."""
    drawn, words = random.Random(number), WORDS.split()
    lines = (" ".join(drawn.choices(words, weights=range(len(words), 0, -1), k=9)) for _ in range(SHARD_CHARS // 50))
    return ".\n".join(line.capitalize() for line in lines)


def prepare(files: Path) -> None:
    """Write shards, lists of them, versions of the tokenizer, and the recipe that links the shards."""
    shards = files / "shards"
    shards.mkdir()
    for number in range(NUM_SHARDS):
        (shards / f"docs-{number}.txt").write_text(_prose(number))
    drawn = random.Random(1)
    for name in CRAWLED:
        lines = ("".join(drawn.choices("0123456789abcdef+/=", k=60)) for _ in range(SHARD_CHARS // 60))
        (shards / name).write_text("\n".join(lines))
    docs = [f"docs-{number}.txt" for number in range(NUM_SHARDS)]
    for name, listed in {"old": docs[:4], "new": [*docs[:3], docs[4]], "crawled": [*CRAWLED, *docs[:2]]}.items():
        (files / f"shards-{name}.txt").write_text("\n".join(listed) + "\n")
    for version, tab, dropout in ((3, 8, 0.0), (4, 4, 0.0), (5, 8, 0.3)):
        folder = files / f"tokenizer-{version}"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps({"version": version, "tab": tab, "dropout": dropout}) + "\n")
    (files / "recipe.yaml").write_text(json.dumps({"data": {"link": [{"from": str(shards), "to": "data/shards"}]}}) + "\n")


def _scenario(name: str, culprit: str, *, shards: str, tokenizer: int) -> Scenario:
    return Scenario(
        name,
        weave({}, num=20, without=("corpus: topics are sorted once",)),
        Truth("isolated", 0, ((culprit,),), kind_of_change="worse"),
        base={"corpus.py": CORPUS_PY},
        options=(
            *("--recipe", "{files}/recipe.yaml", "--good-config", "{files}/good.yaml", "--bad-config", "{files}/bad.yaml"),
            *("--good-data", "data/shards.txt={files}/shards-old.txt", "--good-data", "data/tokenizer={files}/tokenizer-3"),
            *("--bad-data", f"data/shards.txt={{files}}/shards-{shards}.txt"),
            *("--bad-data", f"data/tokenizer={{files}}/tokenizer-{tokenizer}"),
        ),
        files={"good.yaml": CONFIG_YAML, "bad.yaml": BAD_CONFIG},
        command=("python", "train.py", "--config", "{config}"),
        prepare=prepare,
    )


TOKENIZER = _scenario("data_tokenizer", "data/tokenizer", shards="new", tokenizer=5)
SHARDS = _scenario("data_shards", "data/shards.txt", shards="crawled", tokenizer=4)
