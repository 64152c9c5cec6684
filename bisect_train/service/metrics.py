"""Numbers for Prometheus: what waits and runs, what was used, how requests went. No names of users, repositories or commits."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bisect_train.service.backend import Backend
from bisect_train.service.overview import STATUSES, Overview
from bisect_train.store.queue_contract import QueueState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class _Stored(Collector):
    """Reads the store when somebody asks."""

    def __init__(self, backend: Backend, overview: Overview, num_streams: Callable[[], int]) -> None:
        self._backend = backend
        self._overview = overview
        self._num_streams = num_streams

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names are told by `collect` alone."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the numbers of now."""
        tally = Tally(item.status for item in self._overview.items())
        by_status = GaugeMetricFamily("bisect_train_bisections", "Bisections by status.", labels=["status"])
        for status in STATUSES:
            by_status.add_metric([status], tally[status])
        yield by_status
        waiting = self._backend.queue.entries(states=(QueueState.QUEUED,), limit=1000)
        yield GaugeMetricFamily("bisect_train_queue_length", "Bisections that wait.", value=len(waiting))
        oldest_s = max((time.time() - entry.submitted_s for entry in waiting), default=0.0)
        yield GaugeMetricFamily("bisect_train_queue_oldest_seconds", "Age of the oldest that waits.", value=max(0.0, oldest_s))
        usages = self._backend.queue.usages(since_s=0.0)
        num_probes, gpu_s = sum(item.num_probes for item in usages), sum(item.gpu_s for item in usages)
        yield CounterMetricFamily("bisect_train_probes", "Probes that came to their end.", value=num_probes)
        yield CounterMetricFamily("bisect_train_gpu_seconds", "GPU-seconds of all probes.", value=gpu_s)
        yield GaugeMetricFamily("bisect_train_streams", "Streams that are open.", value=self._num_streams())


class Meters:
    """The registry of one application, and what is counted as requests come."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names = ["method", "route"]
        self._requests = Counter(
            "bisect_train_http_requests", "Requests by route and status.", [*names, "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "bisect_train_http_seconds", "Time until an answer began.", names, registry=self.registry, buckets=_BUCKETS
        )

    def watch_store(self, backend: Backend, overview: Overview, num_streams: Callable[[], int]) -> None:
        """Add what is read from the store."""
        self.registry.register(_Stored(backend, overview, num_streams))

    def count(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count a request; `route` is the pattern of its address, never the address itself."""
        method = method if method in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(took_s)

    def text(self) -> bytes:
        """Return everything in Prometheus's format."""
        return generate_latest(self.registry)
