"""Bisections, events and probes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "bisections",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("created_s", sa.Float(53), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("question", sa.Text, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("bisection_id", sa.String(16), sa.ForeignKey("bisections.id"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("time_s", sa.Float(53), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_table(
        "probes",
        sa.Column("bisection_id", sa.String(16), primary_key=True),
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("source_id", sa.String(16), nullable=True),
        sa.Column("result", sa.LargeBinary, nullable=True),
        sa.ForeignKeyConstraint(["bisection_id", "seq"], ["events.bisection_id", "events.seq"]),
        sa.ForeignKeyConstraint(["source_id", "key"], ["probes.bisection_id", "probes.key"]),
    )
    op.create_index("ix_probes_key", "probes", ["key"])


def downgrade() -> None:
    """Not offered: a store is never taken back to an older version."""
    raise NotImplementedError("a store cannot be taken back to an older version")
