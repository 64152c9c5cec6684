"""`bisect-train serve` as a command: users, what it refuses, and that it runs what it was given."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bisect_train.cli.main import COMMANDS
from bisect_train.store.home import open_store
from bisect_train.store.queue_contract import UserLimits
from tests.support.command_bench import Run


def test_users_are_added_changed_listed_and_revoked(run: Run, tmp_path: Path) -> None:
    status, out, err = run("serve", "user", "add", "anna", "--admin", "--max-probes-per-day", "500")
    token = out.strip()
    assert status == 0 and len(token) >= 32 and token not in err and "cannot be shown again" in err
    status, out, _ = run("serve", "user", "set", "anna", "--no-admin", "--max-running", "2")
    assert status == 0 and "at most 2 running, 500 probes a day" in out
    store = open_store(tmp_path / "home")
    try:
        user = store.queue().user_of_token(token)
        assert user is not None and (user.name, user.is_admin) == ("anna", False)
        assert user.limits == UserLimits(max_running=2, max_probes_per_day=500)
        status, out, _ = run("serve", "user", "renew", "anna")
        assert (
            status == 0 and store.queue().user_of_token(token) is None and store.queue().user_of_token(out.strip()) is not None
        )
        assert run("serve", "user", "revoke", "anna")[0] == 0 and store.queue().user_of_token(out.strip()) is None
    finally:
        store.close()
    status, out, _ = run("serve", "user", "list")
    assert status == 0 and re.search(r"anna +user, no token", out) and token not in out
    for args in (
        ("add", "anna"),
        ("add", "no/name"),
        ("add", "operator"),
        ("add", "local", "--admin"),
        ("revoke", "ben"),
        ("renew", "ben"),
        ("set", "ben"),
    ):
        assert run("serve", "user", *args)[0] == 2, args


def test_service_that_others_reach_needs_a_token_first(run: Run) -> None:
    status, _, err = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert status == 2 and "no token is set" in err and "serve user add NAME" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--repo", "/nonexistent"), "/nonexistent"),
        (("--recipe", "gone.yaml"), "gone.yaml"),
        (("--token-file", "gone.txt"), "cannot be read"),
        (("--python", "no-such-python"), "no-such-python"),
    ],
)
def test_options_that_cannot_be_used_are_refused(run: Run, args: tuple[str, ...], said: str) -> None:
    status, _, err = run("serve", "--port", "0", *args)
    assert status == 2 and said in err


def test_port_that_is_taken_is_told(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, _, err = run("serve", "--port", str(taken.getsockname()[1]))
    assert status == 1 and "cannot listen on 127.0.0.1" in err and "--port" in err


def test_command_is_listed_and_the_coordinators_part_is_hidden(run: Run) -> None:
    assert "serve" in COMMANDS
    status, out, _ = run("serve", "--help")
    assert status == 0 and "user" in out and "coordinate" not in out


WITHOUT = """
import sys
sys.modules["uvicorn"] = None
sys.argv = ["bisect-train", "serve", "--port", "0"]
from bisect_train.cli.main import main
main()
"""
LIGHT = """
import sys
sys.argv = ["bisect-train", "serve", "user", "--help"]
from bisect_train.cli.main import main
try:
    main()
finally:
    assert not {"fastapi", "uvicorn", "prometheus_client", "ray"} & set(sys.modules)
"""


def test_service_without_its_packages_says_how_to_get_them(tmp_path: Path) -> None:
    env = {"BISECT_TRAIN_HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", WITHOUT], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "pip install 'bisect-train[service]'" in done.stderr, done.stderr


def test_users_need_none_of_the_services_packages(tmp_path: Path) -> None:
    env = {"BISECT_TRAIN_HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", LIGHT], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
