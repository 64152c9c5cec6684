"""Alembic's entry point: runs the migrations on the connection that `store.engine` hands over, in its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
