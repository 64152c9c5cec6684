"""What counts as a secret, and what a reader sees in its place."""

from __future__ import annotations

import pytest

from bisect_train.changes.arguments import diff_commands
from bisect_train.changes.config import apply_settings, diff_configs
from bisect_train.changes.packages import diff_packages, read_packages_text
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import InputError
from bisect_train.core.question import ConfigEnd
from bisect_train.core.secrets import HIDDEN, is_secret_key, mask_command, mask_line, mask_logins, mask_text


@pytest.mark.parametrize(
    "path",
    [
        *(
            "wandb.api_key",
            "apiKey",
            "hf_token",
            "--hf-token",
            "token",
            "logger.auth.token",
            "db.password",
            "AWS_SECRET_ACCESS_KEY",
        ),
        *("credentials.user", "secrets.x", "--api-key", "accessToken", "WANDB_KEY"),
    ],
)
def test_key_that_names_a_secret_is_one(path: str) -> None:
    assert is_secret_key(path, "abc")


@pytest.mark.parametrize(
    "path",
    [
        *("tokenizer.pad_token", "eos_token", "model.image_token", "--mask-token", "max_tokens", "tokenizer", "num_tokens"),
        *("sort_key", "key", "data.image_key", "MODEL.TOKENS", "keyframes", "monkey", "optimizer.lr", "secretary"),
    ],
)
def test_key_of_a_training_that_only_looks_like_one_is_none(path: str) -> None:
    assert not is_secret_key(path, "abc")


def test_token_that_is_a_number_or_a_switch_is_shown_and_a_password_never() -> None:
    assert not is_secret_key("cost_token", "0.5") and not is_secret_key("with_token", "True")
    assert is_secret_key("password", "1234")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("git+https://me:s3@host/x@v1", "git+https://(hidden)@host/x@v1"),
        ("https://s3cret@host/simple", "https://(hidden)@host/simple"),
        ("https://me:p@s3@host/simple", "https://(hidden)@host/simple"),
        ("git+ssh://git@host/x.git@v1", "git+ssh://git@host/x.git@v1"),
        ("https://host/x@v1", "https://host/x@v1"),
        ("https://host/x?a=1&access_token=s3&b=2", "https://host/x?a=1&access_token=(hidden)&b=2"),
        ("me@host", "me@host"),
    ],
)
def test_login_in_an_address_is_hidden(text: str, shown: str) -> None:
    assert mask_logins(text) == shown


def test_command_is_shown_without_its_secrets_and_keeps_the_rest() -> None:
    words = (
        "python",
        "train.py",
        "--api-key",
        "s3",
        "--hf_token=s3",
        "+wandb.key=s3",
        "--pad-token",
        "<pad>",
        "--token",
        "--lr",
        "1",
    )
    shown = (
        "--api-key",
        "(hidden)",
        "--hf_token=(hidden)",
        "+wandb.key=(hidden)",
        "--pad-token",
        "<pad>",
        "--token",
        "--lr",
        "1",
    )
    assert mask_command(words) == ("python", "train.py", *shown)


def test_config_text_is_shown_without_secrets_in_any_layout() -> None:
    text = """lr: 1
api_key: my own s3
private_key: |
  s3
  s3
wd: 2
{"password": "s3", "eos_token": "</s>"}
credentials:
  u: s3
b: 3
"""
    shown = mask_text(text)
    assert "s3" not in shown
    for kept in ("lr: 1", "wd: 2", '"eos_token": "</s>"', "b: 3", "private_key: (hidden)"):
        assert kept in shown


@pytest.mark.parametrize(
    "line",
    [
        *("env: WANDB_API_KEY=s3", "a=b=password=s3", "export FOO=1 AWS_SECRET_ACCESS_KEY=s3", "x: 1, pw: password: s3"),
        *("run: python x --api-key s3 --lr 1", '["--api-key", "s3", "--lr", "1"]', "args: [--hf-token, s3]"),
        *("Authorization: Bearer s3", "curl -H 'Authorization: Bearer s3' https://host/", 'message="password=s3"'),
        *(
            "environ({'HF_TOKEN': 's3'})",
            "--password='a s3' x",
            '{"a": 1, "password": "cut off s3',
            '{"password": "a\\"s3", "b": 1}',
        ),
        *("TypeError: got config={'api_key': 's3'}", "https://me:s3@host/x?token=s3 not found"),
    ],
)
def test_secret_in_a_line_is_hidden_wherever_it_stands(line: str) -> None:
    shown = mask_line(line)
    assert HIDDEN in shown and "s3" not in shown


@pytest.mark.parametrize(
    "token",
    [
        *("ghp_" + "a1" * 18, "github_pat_" + "a1" * 20, "glpat-" + "a1" * 10, "hf_" + "aB" * 17, "xoxb-123456789012-abc"),
        *("sk-" + "a1" * 20, "AKIA" + "A1" * 8, "AIza" + "a" * 35, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"),
    ],
)
def test_token_of_a_known_service_is_hidden_without_a_name(token: str) -> None:
    assert mask_line(f"logged in with {token}, going on") == f"logged in with {HIDDEN}, going on"


@pytest.mark.parametrize(
    "line",
    [
        *(
            "lr: 0.1",
            "step 3 token: 0.5 loss=2",
            "tokens/s: 3000",
            "--pad-token <pad> --lr 1",
            "eos_token: </s>",
            "--token --lr 1",
        ),
        *(
            "def f(key: str, sort_key=None) -> int:",
            "monkey: banana, keyframes: 3",
            "ask-0123456789012345678901234567890123 hf_short",
        ),
    ],
)
def test_line_without_a_secret_stays_as_it_is(line: str) -> None:
    assert mask_line(line) == line


def test_titles_of_config_keys_hide_secrets_and_the_file_made_from_them_does_not() -> None:
    ends = [
        ConfigEnd(
            name,
            FilePatch("c.yaml", f"lr: {value}\napi_key: s3{value}\npin_password: {value}\nurl: 'https://u:s3{value}@h/'\n"),
        )
        for name, value in (("a.yaml", 1), ("b.yaml", 2))
    ]
    diff = diff_configs(*ends)
    titles = [change.title for change in diff.changes]
    assert titles[0] == "lr: 1 -> 2" and titles[1:3] == ["api_key: (hidden) -> (hidden)", "pin_password: (hidden) -> (hidden)"]
    assert "s3" not in " ".join(titles)
    assert "api_key: s32" in diff.render(["api_key"]).text
    assert apply_settings(ends[0], ["api_key=s3x"]).path == "a.yaml with api_key=(hidden)"


def test_titles_of_arguments_hide_secrets_and_the_command_made_from_them_does_not() -> None:
    good, bad = (["python", "t.py", "--api-key", f"s3{idx}", f"wandb.password=s3{idx}"] for idx in (1, 2))
    diff = diff_commands(good, bad)
    assert [change.title for change in diff.changes] == [
        "--api-key: (hidden) -> (hidden)",
        "wandb.password: (hidden) -> (hidden)",
    ]
    assert diff.render(diff.changes) == tuple(bad)
    (replaced,) = diff_commands(good, ["bash", "x.sh", "--token", "s3"]).changes
    assert "s3" not in replaced.title and "bash x.sh --token" in replaced.title


def test_titles_and_errors_of_packages_hide_the_login_of_their_address() -> None:
    pins = [read_packages_text("r.txt", f"x @ git+https://me:s3@host/x@v{idx}\n") for idx in (1, 2)]
    (change,) = diff_packages(*pins).changes
    assert change.title == "x: git+https://(hidden)@host/x@v1 -> git+https://(hidden)@host/x@v2"
    with pytest.raises(InputError) as caught:
        read_packages_text("r.txt", "x @ https://me:s3@host/x.whl\nx @ https://me:s3@host/y.whl\n")
    assert "s3" not in str(caught.value)
