"""Alembic migrations, run by `store.engine` when a database is opened; there is no alembic.ini."""
