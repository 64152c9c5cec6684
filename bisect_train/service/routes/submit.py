"""Submitting a question: it is stored and put into the queue; a process of its own runs it when its turn comes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from bisect_train.core.errors import InputError
from bisect_train.service.auth import Caller, ensure_user
from bisect_train.service.parts import Parts, find
from bisect_train.service.problems import Refused, problems
from bisect_train.service.routes.shared import Has, Who
from bisect_train.service.settings import Settings
from bisect_train.service.wire import Submission
from bisect_train.store.queue_contract import LimitError

router = APIRouter(tags=["submit"])
ENOUGH_QUEUED = 1000


@router.get("/offer", summary="What may be asked about", responses=problems())
def offer(parts: Has, who: Who) -> dict[str, Any]:
    """Return the names of repositories and recipes, and whether this caller may send a command of its own."""
    settings = parts.settings
    return {
        "repositories": [name for name, _ in settings.repositories],
        "recipes": [name for name, _ in settings.recipes],
        "may_send_command": may_send_command(who, settings),
        "user": who.name,
        "is_admin": who.is_admin,
    }


@router.post("/bisections", status_code=201, summary="Submit a question", responses=problems(400, 408, 422, 429))
def submit(wanted: Submission, parts: Has, who: Who) -> dict[str, Any]:
    """Store a question and put it into the queue; return the bisection."""
    return parts.overview.item(find(parts, submit_for(wanted, parts, who))).to_json()


def submit_for(wanted: Submission, parts: Parts, who: Caller) -> str:
    """Store a question of a caller, put it into the queue, and return its id.

    Raises:
        Refused: a command that this caller may not send, or too many that wait.
        InputError: the question cannot be asked.
    """
    settings = parts.settings
    if wanted.command and not may_send_command(who, settings):
        hint = "ask by a recipe of the service; with --allow-commands the one person on this machine may send one"
        raise Refused(403, "only an administrator may send a training command", hint=hint)
    repository = settings.repository(wanted.repository)
    recipe = settings.recipe(wanted.recipe) if wanted.recipe else None
    ensure_caller(parts, who)
    refuse_full_queue(parts, who)
    is_spent = parts.backend.queue.allowance(who.name).is_spent
    try:
        bisection_id = parts.backend.ask(wanted, repository=repository, recipe=recipe, may_answer=not is_spent)
    except LimitError as error:
        raise Refused(429, error.message, hint=error.hint) from None
    enqueue(parts, bisection_id, who.name, is_answered=parts.backend.store.load(bisection_id).status == "finished")
    return bisection_id


def may_send_command(who: Caller, settings: Settings) -> bool:
    """Return whether a caller may say what is run: what is sent is run as the user that the service runs as."""
    return settings.allow_commands if who.is_alone else who.is_admin


def ensure_caller(parts: Parts, who: Caller) -> None:
    """Make sure that the queue knows a caller who is known without a token of the store's."""
    ensure_user(parts.backend.queue, who.name)


def refuse_full_queue(parts: Parts, who: Caller) -> None:
    """Raise Refused with status 429 before a question is stored that would have no place in the queue."""
    queue = parts.backend.queue
    num, limit = queue.usage(who.name).num_queued, queue.user(who.name).limits.max_queued
    if num >= min(ENOUGH_QUEUED, ENOUGH_QUEUED if limit is None else limit):
        raise Refused(429, f"{num} bisections of {who.name} wait already", hint="wait until some of them are done")


def enqueue(parts: Parts, bisection_id: str, user: str, *, is_answered: bool = False) -> None:
    """Put a stored bisection into the queue, or only note whose it is. Raises Refused with status 409 or 429."""
    queue = parts.backend.queue
    try:
        (queue.note_answered if is_answered else queue.submit)(bisection_id, user)
    except LimitError as error:
        raise Refused(429, error.message, hint=error.hint, headers={"Retry-After": "60"}) from None
    except InputError as error:
        raise Refused(409, error.message, hint=error.hint) from None
    parts.overview.forget()
    parts.wake_dispatcher()
