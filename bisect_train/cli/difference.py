"""What differs between two ends, as far as options and a recipe say: a question without how its probes are judged."""

from __future__ import annotations

from bisect_train.changes.data import digest_links
from bisect_train.changes.package_axis import pins_of
from bisect_train.changes.packages import diff_packages
from bisect_train.changes.priors import read_rule
from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Asked
from bisect_train.cli.data_ends import check_untracked
from bisect_train.cli.end_states import end_states, held_configs
from bisect_train.cli.environments import environment_settings, package_repos
from bisect_train.cli.finding import find_python, find_recipe
from bisect_train.cli.whens import ask_whens
from bisect_train.core.errors import InputError
from bisect_train.core.probe import Rung, RunSettings
from bisect_train.core.question import ConfigEnd, ConfigHold, EndState, Question, Range


def ask_difference(
    asked: Asked,
    repository: Repository,
    *,
    commits: Range,
    good_config: ConfigEnd | None = None,
    bad_config: ConfigEnd | None = None,
) -> Question:
    """Return the question about two ends as far as it says what differs; nothing in it says what to measure.

    Raises:
        InputError: options that contradict each other, a file that cannot be read.
    """
    recipe = find_recipe(asked, repository.root)
    links = recipe.links_from(repository.root)
    good_state, bad_state = end_states(asked, recipe, links)
    own = {item.link.target for item in good_state.data}
    check_untracked(sorted({*own, *(link.target for link in links)}), repository, commits)
    common = tuple(link for link in links if link.target not in own)
    python = find_python(asked.python)
    settings = RunSettings(python, links=common, environment=environment_settings(asked, recipe, python))
    differing = None if recipe.environment.files else _differing(good_state, bad_state)
    hold, config_path = ConfigHold(asked.hold_config), asked.config or recipe.config.file
    if hold is not ConfigHold.TRAVEL:
        good_config, bad_config = _held(hold, config_path, repository, commits, good_config)
    return Question(
        kind="run",
        repo=str(repository.root),
        range=commits,
        command=asked.command or recipe.command,
        settings=settings,
        rung=Rung(None, asked.ranks or 1),
        config_path=config_path,
        good_config=good_config,
        bad_config=bad_config,
        override=recipe.config.override,
        env=recipe.data.env,
        data=digest_links(common),
        priors=tuple(read_rule(text).text for text in asked.prior),
        good_state=good_state,
        bad_state=bad_state,
        hold=hold,
        package_repos=package_repos(
            asked,
            recipe,
            differing,
            home=repository.home,
            is_submodule=lambda name: repository.may_have_file(commits.bad, name),
        ),
        launcher=recipe.launcher,
        hydra_dir=recipe.config.hydra if asked.bad_hydra else "",
        only=asked.only,
        exclude=asked.exclude,
        whens=ask_whens(asked, recipe, repository),
    )


def _differing(good: EndState, bad: EndState) -> frozenset[str]:
    """Return the names of the packages that differ between two ends."""
    return frozenset(change.id for change in diff_packages(pins_of(good.packages), pins_of(bad.packages)).changes)


def _held(
    hold: ConfigHold, path: str, repository: Repository, commits: Range, given: ConfigEnd | None
) -> tuple[ConfigEnd | None, ConfigEnd | None]:
    if given is not None:
        raise InputError(
            f"--hold-config {hold.value} is about the config file in the repository, --good-config about one outside of it",
            hint="leave one of them out",
        )
    return held_configs(hold, path, repository, commits)
