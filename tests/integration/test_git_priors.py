"""Prior weights from rules: what each kind matches in a real repository, how weights combine, which rules are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.changes.priors import MAX_WEIGHT, MIN_WEIGHT, PriorRule, Priors, read_rule
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import InputError
from bisect_train.core.question import ConfigEnd, Question
from tests.support.git_repos import UserRepo, question_of


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> UserRepo:
    """Candidates 0 to 3: docs, optimizer (named in the body), docs and code, a commit by a bot."""
    made = UserRepo.create(tmp_path_factory.mktemp("priors") / "repo")
    made.commit({"train.py": "0\n"}, message="start")
    made.git("tag", "start")
    made.commit({"docs/guide/intro.md": "1\n"}, message="write the guide")
    made.commit({"train.py": "1\n"}, message="tidy up\n\nThis touches the Optimizer, lr=5 stays.")
    made.commit({"docs/index.md": "1\n", "train.py": "2\n"}, message="rename")
    made.git("commit", "-q", "--allow-empty", "-m", "bump", "--author=Bot <bot@ci.example>")
    return made


def space_of(user: UserRepo, home: Path, *priors: str, **more: object) -> ChangeSpace:
    question = question_of(user.git("rev-parse", "start").strip(), user.head, **more)  # type: ignore[arg-type]
    return build_space(user.open(home), _with(question, priors))


def _with(question: Question, priors: tuple[str, ...]) -> Question:
    return Question.of_json({**question.to_json(), "priors": list(priors)})


@pytest.mark.parametrize(
    ("rule", "weights"),
    [
        ("path:docs/**=0.5", {0: 0.5, 2: 0.5}),
        ("path:./docs/*.md=0.5", {2: 0.5}),
        ("message:(?i)optim|lr=5", {1: 5.0}),
        ("message:lr=5 stays=3", {1: 3.0}),
        ("message:^re=2", {2: 2.0}),
        ("author:@ci\\.example=0.1", {3: 0.1}),
        ("author:^Bot <=0.1", {3: 0.1}),
        ("key:*=9", {}),
        ("path:nosuch/**=9", {}),
        ("message:e=1", {}),
    ],
)
def test_rule_gives_its_weight_to_what_it_matches(user: UserRepo, tmp_path: Path, rule: str, weights: dict[int, float]) -> None:
    priors = space_of(user, tmp_path / "home", rule).priors
    assert dict(priors.weights) == weights
    assert priors.idle == (() if weights or rule.endswith("=1") else (rule,))


def test_weights_multiply_and_stay_within_bounds(user: UserRepo, tmp_path: Path) -> None:
    rules = ("path:docs/**=0.01", "path:docs/index.md=4", "message:guide=0.01", "message:tidy=900", "message:touches=900")
    priors = space_of(user, tmp_path / "home", *rules).priors
    assert dict(priors.weights) == {0: MIN_WEIGHT, 1: MAX_WEIGHT, 2: pytest.approx(0.04)}
    assert [num for _, num in priors.num_matched] == [2, 1, 1, 1, 1]


def test_rules_and_path_come_together(user: UserRepo, tmp_path: Path) -> None:
    """What `--path` leaves out weighs 0.001; a rule can raise it, and nothing falls below the bound."""
    priors = space_of(user, tmp_path / "home", "message:guide=50", "author:Bot=0.5", paths=("train.py",)).priors
    assert dict(priors.weights) == {0: pytest.approx(0.05), 3: MIN_WEIGHT}


def test_config_keys_have_rules_of_their_own(user: UserRepo, tmp_path: Path) -> None:
    texts = ("optimizer: {lr: 1, beta: 2}\nseed: 1\n", "optimizer: {lr: 3, beta: 4}\nseed: 2\n")
    good, bad = (ConfigEnd("a.yaml", FilePatch("a.yaml", text)) for text in texts)
    space = space_of(user, tmp_path / "home", "key:optimizer.*=10", good_config=good, bad_config=bad)
    matched = {space.changes[idx].id: weight for idx, weight in space.priors.weights}
    assert matched == {"optimizer.lr": 10.0, "optimizer.beta": 10.0}


def test_question_stored_by_an_earlier_version_has_no_priors(user: UserRepo, tmp_path: Path) -> None:
    stored = question_of(user.git("rev-parse", "start").strip(), user.head).to_json()
    del stored["priors"]
    question = Question.of_json(stored)
    assert question.priors == () and build_space(user.open(tmp_path / "home"), question).priors == Priors()


def test_rule_is_split_at_its_first_colon_and_its_last_equals_sign() -> None:
    assert read_rule("message:a:b=c=0.5") == PriorRule("message", "a:b=c", 0.5, "message:a:b=c=0.5")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("docs/**=0.1", "is not KIND:PATTERN=WEIGHT"),
        ("path:docs/**", "is not KIND:PATTERN=WEIGHT"),
        ("path:=0.1", "is not KIND:PATTERN=WEIGHT"),
        ("", "is not KIND:PATTERN=WEIGHT"),
        ("paths:docs=0.1", "unknown kind 'paths', known are path, message, author, key"),
        ("message:(=2", "the regular expression cannot be read"),
        ("author:*=2", "the regular expression cannot be read"),
        ("path:docs/**=0", "'0' is no weight"),
        ("path:docs/**=-1", "'-1' is no weight"),
        ("path:docs/**=1001", "'1001' is no weight"),
        ("path:docs/**=nan", "'nan' is no weight"),
        ("path:docs/**=inf", "'inf' is no weight"),
        ("path:docs/**=much", "'much' is no weight"),
    ],
)
def test_bad_rule_is_refused_with_the_rule(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_rule(text)
    assert said in caught.value.message and caught.value.exit_status == 2 and caught.value.hint
