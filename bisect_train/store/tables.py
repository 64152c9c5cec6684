"""The tables as this version uses them; `migrations/` makes them. Change both, and SCHEMA_VERSION, together."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

SCHEMA_VERSION = "0003"
"""Revision of the newest migration; revisions are numbers, so that a newer one can be told."""

metadata = MetaData()

bisections = Table(
    "bisections",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("created_s", Float(53), nullable=False),
    Column("title", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("whole_id", String(16), nullable=True),  # the outermost bisection that this one is a part of
    Column("gpus", Float(53), nullable=True),  # of one probe
)

events = Table(
    "events",
    metadata,
    Column("bisection_id", String(16), ForeignKey("bisections.id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(64), nullable=False),
    Column("time_s", Float(53), nullable=False),
    Column("data", Text, nullable=False),
)

# One row per probe that counts in a bisection. A reused result has no `result` of its own but names the bisection that
# has it, so that what a bisection saw does not change when others add results.
probes = Table(
    "probes",
    metadata,
    Column("bisection_id", String(16), primary_key=True),
    Column("key", String(64), primary_key=True, index=True),
    Column("seq", Integer, nullable=False),
    Column("source_id", String(16), nullable=True),
    Column("result", LargeBinary, nullable=True),
    ForeignKeyConstraint(["bisection_id", "seq"], ["events.bisection_id", "events.seq"]),
    ForeignKeyConstraint(["source_id", "key"], ["probes.bisection_id", "probes.key"]),
)

counters = Table(
    "counters",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# One row per bisection: the number of its last news. Numbers are given out under the lock of a row of `counters` that is
# held until the commit, so that who has seen number N has seen all below it.
updates = Table(
    "updates",
    metadata,
    Column("bisection_id", String(16), ForeignKey("bisections.id"), primary_key=True),
    Column("number", BigInteger, nullable=False, index=True),
)

# What an event cost, where it cost something; summed up per user and day.
spent = Table(
    "spent",
    metadata,
    Column("bisection_id", String(16), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("time_s", Float(53), nullable=False, index=True),
    Column("num_probes", Integer, nullable=False),
    Column("gpu_s", Float(53), nullable=False),
    ForeignKeyConstraint(["bisection_id", "seq"], ["events.bisection_id", "events.seq"]),
)

leases = Table(
    "leases",
    metadata,
    Column("bisection_id", String(16), ForeignKey("bisections.id"), primary_key=True),
    Column("token", String(32), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("until_s", Float(53), nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("token_hash", String(64), nullable=True),
    Column("is_admin", Boolean, nullable=False),
    Column("max_queued", Integer, nullable=True),
    Column("max_running", Integer, nullable=True),
    Column("max_probes_per_day", Integer, nullable=True),
    Column("max_gpu_hours_per_day", Float(53), nullable=True),
    Column("created_s", Float(53), nullable=False),
    Index("ix_users_token_hash", "token_hash", unique=True),
)

dispatchers = Table(
    "dispatchers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("until_s", Float(53), nullable=False),
)

queue = Table(
    "queue",
    metadata,
    Column("bisection_id", String(16), ForeignKey("bisections.id"), primary_key=True),
    Column("user_name", String(64), ForeignKey("users.name"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("submitted_s", Float(53), nullable=False, index=True),
    Column("started_s", Float(53), nullable=True),
    Column("ended_s", Float(53), nullable=True),
    Column("num_starts", Integer, nullable=False),
    Column("dispatcher_id", String(32), ForeignKey("dispatchers.id"), nullable=True),
    Column("reason", Text, nullable=False),
    Index("ix_queue_state", "state", "user_name"),
)

nightly_watches = Table(
    "nightly_watches",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("created_s", Float(53), nullable=False),
    Column("about", Text, nullable=False),
)

nightly_events = Table(
    "nightly_events",
    metadata,
    Column("watch", String(64), ForeignKey("nightly_watches.name"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(64), nullable=False),
    Column("time_s", Float(53), nullable=False),
    Column("data", Text, nullable=False),
)
