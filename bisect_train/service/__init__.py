"""`bisect-train serve`: bisections over HTTP, a queue that runs them, and a page to watch them.

How the parts fit, from the outside in:

- `app.create_app(settings, desk)` builds the FastAPI application: the guards of `guard` (size and time of a request, Host and
  Origin), the routes of `routes/` under /api/v1, the page's router `pages.router`, and the errors of `problems`, all of one
  shape {error, hint}.
- `auth` says who calls: a bearer token, a cookie session that was opened with a token, or the one person on this machine where
  no token is set. A route takes it with `Depends(auth.caller)`.
- `wire` has what comes in (pydantic, strict), `views` what goes out: the question as stored holds secrets and never leaves.
- `backend.Backend` is what the service needs of the rest of the tool (ask a question, where does it stand, mark, undo, which
  command runs it). `cli.serving` makes it, since what asks questions lives there; this package never imports `cli`.
- `feed.Feed` reads the events of the bisections that somebody watches, once for all watchers, and `routes/watch.py` sends them.
- `dispatcher.Dispatcher` takes bisections from the queue in the store and runs each in a process of its own (`children`), all
  on one Ray cluster (`cluster`). What running probes report comes through the child's pipe into `live.LiveBoard`.

Routes find their parts in `request.app.state.parts` (`parts.Parts`). Calls into the store or git block, so routes that make
them are plain functions, which FastAPI runs in threads.
"""
