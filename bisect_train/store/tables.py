"""The tables as this version uses them; `migrations/` makes them. Change both, and SCHEMA_VERSION, together."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, ForeignKeyConstraint, Integer, LargeBinary, MetaData, String, Table, Text

SCHEMA_VERSION = "0001"
"""Revision of the newest migration; revisions are numbers, so that a newer one can be told."""

metadata = MetaData()

bisections = Table(
    "bisections",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("created_s", Float(53), nullable=False),
    Column("title", Text, nullable=False),
    Column("question", Text, nullable=False),
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
