"""Nightly watches and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables of the nightly watches."""
    op.create_table(
        "nightly_watches",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("created_s", sa.Float(53), nullable=False),
        sa.Column("about", sa.Text, nullable=False),
    )
    op.create_table(
        "nightly_events",
        sa.Column("watch", sa.String(64), sa.ForeignKey("nightly_watches.name"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("time_s", sa.Float(53), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Not offered: a store is never taken back to an older version."""
    raise NotImplementedError("a store cannot be taken back to an older version")
