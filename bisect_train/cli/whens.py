"""From a recipe's `when:` blocks to those of a question: revisions resolved, data digested."""

from __future__ import annotations

from collections.abc import Sequence

from bisect_train.changes.choices import Choices, is_ancestor
from bisect_train.changes.data import digest_links
from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Asked
from bisect_train.core.errors import InputError, RecipeError, RevisionError
from bisect_train.core.question import Range
from bisect_train.core.when import When
from bisect_train.recipe import Recipe, WhenRecipe


def ask_whens(asked: Asked, recipe: Recipe, repository: Repository) -> tuple[When, ...]:
    """Return the blocks of a recipe for a question; a command behind `--` takes the place of all of the recipe's.

    Raises:
        RecipeError: a revision is unknown (names file, line and key).
        InputError: data are missing, or the ends differ in their commands, too.
    """
    if asked.bad_command and not asked.command and any(block.command for block in recipe.whens):
        raise InputError(
            "--bad-command and `when: command:` in the recipe both say which command a version has",
            hint="give the good end's command behind --, then the recipe's are not used",
        )
    return tuple(_resolve(block, repository, has_command=not asked.command) for block in recipe.whens)


def _resolve(block: WhenRecipe, repository: Repository, *, has_command: bool) -> When:
    return When(
        where=block.where,
        since=_commit(block.since, "since", block, repository),
        until=_commit(block.until, "until", block, repository),
        exists=block.exists,
        file=block.file,
        contains=block.contains,
        lacks=block.lacks,
        command=block.command if has_command else (),
        env=block.data.env,
        data=tuple((link, digest_links((link,))) for link in block.data.links_from(repository.root)),
        patterns=block.patterns,
    )


def _commit(revision: str, key: str, block: WhenRecipe, repository: Repository) -> str:
    if not revision:
        return ""
    try:
        return repository.resolve(revision)
    except RevisionError as error:
        raise RecipeError(f"{block.where}.{key}: {error.message}", hint=error.hint) from None


def commands_of(
    whens: Sequence[When], command: tuple[str, ...], repository: Repository, commits: Range
) -> tuple[tuple[str, ...], ...]:
    """Return the commands that the ends of a range are run with, each once."""
    choices = Choices(repository.git, whens)
    found = []
    for commit in (*commits.goods, commits.bad):

        def has(revision: str, commit: str = commit) -> bool:
            return is_ancestor(repository.git, revision, commit)

        found.append(choices.at(commit, has).command or command)
    return tuple(dict.fromkeys(found))
