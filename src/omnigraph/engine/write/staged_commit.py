"""A commit whose rows are staged by tasks before it is published: claimed by an intent, removed unless published."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import ExitStack

from omnigraph.engine.session import GraphSession
from omnigraph.errors import Effect, OmniGraphError
from omnigraph.ids import OperationId
from omnigraph.manifest.intents import Declared, declared
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan, Receipt
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.write.fragments import claims, remove_staged


class StagedCommit:
    """Declares one intent for all attempts, and claims each dataset before anything is staged for it."""

    def __init__(self, session: GraphSession, kind: str) -> None:
        self._session = session
        self._kind = kind
        self._stack = ExitStack()
        self._intent: Declared | None = None
        self._targets: set[DatasetRef] = set()

    @property
    def operation_id(self) -> OperationId | None:
        """The id of the intent; None as long as nothing had to be staged."""
        return self._intent.operation_id if self._intent is not None else None

    def declare(self, snapshot: Snapshot) -> OperationId:
        """Declare the intent, unless an earlier attempt did."""
        if self._intent is None:
            self._session.kernel.reject_read_only()
            intent = declared(self._session.kernel.store, self._kind, snapshot, self._session.actor)
            self._intent = self._stack.enter_context(intent)
        return self._intent.operation_id

    def claim(self, dataset: Dataset) -> Dataset:
        """Let the intent say that files of a dataset are being staged."""
        if self._intent is not None and dataset.ref not in self._targets:
            self._intent.staging(*claims(dataset.ref, self._intent.operation_id))
            self._targets.add(dataset.ref)
        return dataset

    def publish(
        self,
        branch: str,
        prepare: Callable[[Snapshot], Plan | None],
        policy: CommitPolicy,
        planned_files: Callable[[], Set[str]],
    ) -> Receipt | None:
        """Publish, and remove staged files that the published plan does not consist of."""
        keep: Set[str] = set()
        with self._stack:
            try:
                receipt = self._session.kernel.commit(branch, prepare, policy)
                keep = planned_files()
                return receipt
            except OmniGraphError as error:
                keep = set() if error.effect is Effect.NONE else planned_files()
                raise
            except BaseException:
                # An interrupt may arrive after the publish, which refers to these files.
                keep = planned_files()
                raise
            finally:
                if self._intent is not None:
                    remove_staged(self._session.kernel.store, self._targets, self._intent.operation_id, keep)
