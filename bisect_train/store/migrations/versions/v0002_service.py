"""What a service needs: leases, users, a queue, what was spent, and numbers by which those who watch see what is new."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables of the service and the columns that lists and usage are read from."""
    op.add_column("bisections", sa.Column("whole_id", sa.String(16), nullable=True))
    op.add_column("bisections", sa.Column("gpus", sa.Float(53), nullable=True))
    op.create_table(
        "counters",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "updates",
        sa.Column("bisection_id", sa.String(16), sa.ForeignKey("bisections.id"), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_updates_number", "updates", ["number"])
    op.create_table(
        "spent",
        sa.Column("bisection_id", sa.String(16), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time_s", sa.Float(53), nullable=False),
        sa.Column("num_probes", sa.Integer, nullable=False),
        sa.Column("gpu_s", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["bisection_id", "seq"], ["events.bisection_id", "events.seq"]),
    )
    op.create_index("ix_spent_time_s", "spent", ["time_s"])
    op.create_table(
        "leases",
        sa.Column("bisection_id", sa.String(16), sa.ForeignKey("bisections.id"), primary_key=True),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("until_s", sa.Float(53), nullable=False),
    )
    _make_queue()
    _fill()


def _make_queue() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("token_hash", sa.String(64), nullable=True),
        sa.Column("is_admin", sa.Boolean, nullable=False),
        sa.Column("max_queued", sa.Integer, nullable=True),
        sa.Column("max_running", sa.Integer, nullable=True),
        sa.Column("max_probes_per_day", sa.Integer, nullable=True),
        sa.Column("max_gpu_hours_per_day", sa.Float(53), nullable=True),
        sa.Column("created_s", sa.Float(53), nullable=False),
    )
    op.create_index("ix_users_token_hash", "users", ["token_hash"], unique=True)
    op.create_table(
        "dispatchers",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("until_s", sa.Float(53), nullable=False),
    )
    op.create_table(
        "queue",
        sa.Column("bisection_id", sa.String(16), sa.ForeignKey("bisections.id"), primary_key=True),
        sa.Column("user_name", sa.String(64), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("submitted_s", sa.Float(53), nullable=False),
        sa.Column("started_s", sa.Float(53), nullable=True),
        sa.Column("ended_s", sa.Float(53), nullable=True),
        sa.Column("num_starts", sa.Integer, nullable=False),
        sa.Column("dispatcher_id", sa.String(32), sa.ForeignKey("dispatchers.id"), nullable=True),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_index("ix_queue_state", "queue", ["state", "user_name"])
    op.create_index("ix_queue_submitted_s", "queue", ["submitted_s"])


def _fill() -> None:
    """Give the bisections that are there a number each, in order, and what their questions say of wholes and GPUs."""
    connection = op.get_bind()
    ids = connection.scalars(sa.text("SELECT id FROM bisections ORDER BY created_s, id")).all()
    wholes: dict[str, str] = {}
    for number, name in enumerate(ids, start=1):
        text = connection.scalar(sa.text("SELECT question FROM bisections WHERE id = :id"), {"id": name})
        part_of, gpus = _read(text)
        if part_of in ids:
            wholes[name] = wholes.get(part_of, part_of)
        row = {"id": name, "whole": wholes.get(name), "gpus": gpus, "number": number}
        connection.execute(sa.text("UPDATE bisections SET whole_id = :whole, gpus = :gpus WHERE id = :id"), row)
        connection.execute(sa.text("INSERT INTO updates (bisection_id, number) VALUES (:id, :number)"), row)
    connection.execute(sa.text("INSERT INTO counters (name, value) VALUES ('updates', :number)"), {"number": len(ids)})


def _read(text: str) -> tuple[str, float]:
    try:
        question = json.loads(text)
        return str(question.get("part_of") or ""), float((question.get("settings") or {}).get("gpus") or 0.0)
    except (ValueError, TypeError, AttributeError):  # a damaged question is no reason to refuse the others
        return "", 0.0


def downgrade() -> None:
    """Not offered: a store is never taken back to an older version."""
    raise NotImplementedError("a store cannot be taken back to an older version")
