"""One method for each operation of the service.

Made by .ci/generate from the service's OpenAPI document: do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import models


class Operations:
    """The operations, by name. A rejection raises `NameserviceError`; see `client.py`."""

    def _call(
        self, method: str, path: str, address: str | None, query: Mapping[str, Any], headers: Mapping[str, Any], body: Any
    ) -> Any:
        raise NotImplementedError

    def fluree_discovery_get(self) -> models.FlureeDiscovery:
        """Find Fluree's routes.

        `fluree remote add` asks for this. Needs no token.
        """
        answer: models.FlureeDiscovery = self._call("GET", "/.well-known/fluree.json", None, {}, {}, None)
        return answer

    def fluree_ref_post(self, address: str, body: models.FlureePush | None = None) -> models.FlureeRefAnswer:
        """Move a ref, or create a ledger.

        The path ends in the operation: `{address}/commit` and `{address}/index` compare and set; `{address}/init` creates a
        ledger without commits unless it exists, and takes no body. A retracted record rejects all three with the conflict that
        Fluree's clients understand.
        """
        answer: models.FlureeRefAnswer = self._call("POST", "/fluree/nameservice/refs/{address}", address, {}, {}, body)
        return answer

    def fluree_snapshot_get(self) -> models.FlureeSnapshot:
        """Get all records, in Fluree's format.

        One streamed answer with everything. Behind a gateway, which does not stream, an answer that is too large becomes a
        413: read `/v1/snapshot` in pages.
        """
        answer: models.FlureeSnapshot = self._call("GET", "/fluree/nameservice/snapshot", None, {}, {}, None)
        return answer

    def fluree_record_get(self, address: str) -> models.FlureeLedger:
        """Get a ledger, in Fluree's format.

        This returns ledgers only: graph sources are in `snapshot` and `events`.
        """
        answer: models.FlureeLedger = self._call("GET", "/fluree/storage/ns/{address}", address, {}, {}, None)
        return answer

    def branch_create(
        self, body: models.NewBranch, *, idempotency_key: str | None = None, allow_foreign: bool | None = None
    ) -> models.Record:
        """Create a branch.

        It starts at the head of its source, or at the commit given. The source, which must be live and have a commit,
        cannot be retracted while the branch exists.
        """
        answer: models.Record = self._call(
            "POST", "/v1/branches", None, {"allow_foreign": allow_foreign}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def branch_list(self, address: str, *, limit: int | None = None, cursor: str | None = None) -> models.Branches:
        """List the branches of a name.

        Reads an index: a branch that was created a moment ago may be missing.
        """
        answer: models.Branches = self._call(
            "GET", "/v1/branches/{address}", address, {"limit": limit, "cursor": cursor}, {}, None
        )
        return answer

    def branch_drop(self, address: str, *, idempotency_key: str | None = None) -> models.BranchDropped:
        """Drop a branch.

        Requires `nameservice:admin`. The branch is deleted, and its source has one branch less. Rejected while branches
        or graph sources depend on it, and while it is protected.
        """
        answer: models.BranchDropped = self._call(
            "DELETE", "/v1/branches/{address}", address, {}, {"Idempotency-Key": idempotency_key}, None
        )
        return answer

    def change_list(
        self,
        *,
        after: int | None = None,
        limit: int | None = None,
        wait: int | None = None,
        address: Sequence[str] | None = None,
        prefix: str | None = None,
        kind: Literal["ledger", "graph_source"] | None = None,
        source_type: str | None = None,
        concern: Sequence[Literal["meta", "head", "index", "status", "config"]] | None = None,
    ) -> models.Changes:
        """List changes.

        The changes that follow a position, in one order for all readers, without a gap and each once. A reader that continues
        from the `position` of the answer misses nothing: the position also moves past changes that are filtered out, or that
        the caller may not see. While it moves there may be more, even if `changes` is empty.

        Changes expire after 7 days, unless configured otherwise or kept in an archive. A reader that is behind the oldest
        one gets a 410 with `oldest`, reads `/v1/snapshot`, and continues from its position.
        """
        answer: models.Changes = self._call(
            "GET",
            "/v1/changes",
            None,
            {
                "after": after,
                "limit": limit,
                "wait": wait,
                "address": address,
                "prefix": prefix,
                "kind": kind,
                "source_type": source_type,
                "concern": concern,
            },
            {},
            None,
        )
        return answer

    def change_compare(self, body: models.Subscriptions) -> models.Comparison:
        """Compare known watermarks.

        For clients that keep watermarks rather than a position of the feed. Returns the concerns of at most 1,000 records
        whose watermark or id differs from the given one. Each record is read consistently, after the position.
        """
        answer: models.Comparison = self._call("POST", "/v1/changes/compare", None, {}, {}, body)
        return answer

    def config_push(
        self, address: str, body: models.ConfigPush, *, idempotency_key: str | None = None
    ) -> models.PushAnswerConfig:
        """Change the configuration of a ledger.

        `expected` names the stored `v`. The configuration of a graph source is changed by publishing it.
        """
        answer: models.PushAnswerConfig = self._call(
            "PUT", "/v1/configs/{address}", address, {}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def docs_file_get(self, file: str) -> dict[str, Any]:
        """Get a file of the documentation.

        A script, a style sheet, a licence. Needs no token.
        """
        answer: dict[str, Any] = self._call("GET", "/v1/docs/{file}", None, {}, {}, None)
        return answer

    def graph_source_publish(
        self, address: str, body: models.GraphSource, *, idempotency_key: str | None = None
    ) -> models.Record:
        """Publish a graph source.

        Each dependency must be a live record, and none of them can be retracted while the graph source exists. An existing
        graph source keeps its index, its status and its type; its configuration is replaced, and so are its dependencies
        if they are given.
        """
        answer: models.Record = self._call(
            "PUT", "/v1/graph-sources/{address}", address, {}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def head_push(
        self, address: str, body: models.HeadPush, *, idempotency_key: str | None = None, allow_foreign: bool | None = None
    ) -> models.PushAnswerHead:
        """Move the head of a ledger.

        Without `expected`, a `t` that is not greater than the stored one is `stale`. With it, any other stored value is a
        conflict, as is a new `t` that is not greater than the expected one. `expected: null` creates the ledger. If the
        outcome is `stale` or a conflict, nothing was written, and the response has the stored value.
        """
        answer: models.PushAnswerHead = self._call(
            "PUT", "/v1/heads/{address}", address, {"allow_foreign": allow_foreign}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def health_get(self, *, deep: bool | None = None) -> models.Health:
        """Check the service.

        Needs no token.
        """
        answer: models.Health = self._call("GET", "/v1/health", None, {"deep": deep}, {}, None)
        return answer

    def history_list(
        self,
        address: str,
        *,
        concern: Literal["meta", "head", "index", "status", "config"] | None = None,
        after: int | None = None,
        before: int | None = None,
        order: Literal["oldest", "newest"] | None = None,
        limit: int | None = None,
    ) -> models.History:
        """List the history of a record.

        Goes back as far as the feed does, which is 7 days unless configured otherwise, or as far as its archive. The changes
        of a purged record are included.
        """
        answer: models.History = self._call(
            "GET",
            "/v1/history/{address}",
            address,
            {"concern": concern, "after": after, "before": before, "order": order, "limit": limit},
            {},
            None,
        )
        return answer

    def index_push(
        self, address: str, body: models.IndexPush, *, idempotency_key: str | None = None, allow_foreign: bool | None = None
    ) -> models.PushAnswerIndex:
        """Move the index of a record.

        Works like a push of the head, except that with `expected` the new `t` may equal the expected one: the same data, indexed
        again, which adds 1 to `rev`. Each named graph has its own index; those that a push does not name stay as they are.
        """
        answer: models.PushAnswerIndex = self._call(
            "PUT",
            "/v1/indexes/{address}",
            address,
            {"allow_foreign": allow_foreign},
            {"Idempotency-Key": idempotency_key},
            body,
        )
        return answer

    def lease_acquire(
        self, address: str, body: models.Wanted, *, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.Held:
        """Take or extend a lease.

        A record has at most one live lease. Without `token`, the lease is taken if it is free, expired, or already held under
        the same holder name; the answer's `token` is greater than all previous ones, and the state becomes that of the lease.
        With `token`, the lease is extended, as long as that token is the current one.

        With `wait`, the service retries until the lease is free or the time has passed. If several callers wait, any of them
        may be next.
        """
        answer: models.Held = self._call(
            "PUT", "/v1/leases/{address}", address, {"wait": wait}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def lease_release(self, address: str, *, name: str, holder: str, token: int, idempotency_key: str | None = None) -> None:
        """Release a lease.

        The state becomes `ready`. Rejected unless the token is the current one.
        """
        self._call(
            "DELETE",
            "/v1/leases/{address}",
            address,
            {"name": name, "holder": holder, "token": token},
            {"Idempotency-Key": idempotency_key},
            None,
        )

    def ledger_create(
        self, body: models.NewLedger, *, idempotency_key: str | None = None, allow_foreign: bool | None = None
    ) -> models.Record:
        """Create a ledger.

        The ledger and its four concerns are created together or not at all. A retracted ledger still occupies its address:
        restore or purge it.
        """
        answer: models.Record = self._call(
            "POST", "/v1/ledgers", None, {"allow_foreign": allow_foreign}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def openapi_get(self) -> dict[str, Any]:
        """Get the OpenAPI document.

        Needs no token.
        """
        answer: dict[str, Any] = self._call("GET", "/v1/openapi.json", None, {}, {}, None)
        return answer

    def protection_set(
        self, address: str, body: models.NewProtection, *, idempotency_key: str | None = None
    ) -> models.Protection:
        """Protect a record.

        Requires `nameservice:admin`. A protected record cannot be retracted, purged or reset until it is unprotected; pushes,
        leases, branches and restorations are not affected. Live and retracted records can be protected. Repeating the request
        changes nothing.
        """
        answer: models.Protection = self._call(
            "PUT", "/v1/protections/{address}", address, {}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def record_list(
        self,
        *,
        kind: Literal["ledger", "graph_source"] | None = None,
        name: str | None = None,
        prefix: str | None = None,
        source_type: str | None = None,
        state: str | None = None,
        retracted: bool | None = None,
        view: Literal["summary", "full"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        min_position: int | None = None,
        wait: int | None = None,
    ) -> models.PageListed:
        """List records.

        Reads the indexes of the table: a record that was created a moment ago may be missing. Each whole record of
        `view=full` is as it was when the page was read.
        """
        answer: models.PageListed = self._call(
            "GET",
            "/v1/records",
            None,
            {
                "kind": kind,
                "name": name,
                "prefix": prefix,
                "source_type": source_type,
                "state": state,
                "retracted": retracted,
                "view": view,
                "limit": limit,
                "cursor": cursor,
                "min_position": min_position,
                "wait": wait,
            },
            {},
            None,
        )
        return answer

    def record_get(
        self,
        address: str,
        *,
        concerns: Sequence[str] | None = None,
        min_position: int | None = None,
        min_t: int | None = None,
        min_v: int | None = None,
        concern: Literal["head", "index", "status", "config"] | None = None,
        wait: int | None = None,
        if_none_match: str | None = None,
    ) -> models.Record | None:
        """Get a record.

        Strongly consistent. Retracted records are included. The `ETag` changes with the content: send it back in
        `If-None-Match` to receive the record only if it has changed.

        `min_position`, or `min_t` or `min_v` of a concern, asks for an answer that is at least that fresh, and waits for it
        for up to `wait` seconds; after that, the problem `not-yet` shows the current state. If the service's feed holds each
        write by the time it is answered, `nameservice-position` names the position that the answer includes.

        Returns None if a tag in `if_none_match` is still current.
        """
        answer: models.Record | None = self._call(
            "GET",
            "/v1/records/{address}",
            address,
            {
                "concerns": concerns,
                "min_position": min_position,
                "min_t": min_t,
                "min_v": min_v,
                "concern": concern,
                "wait": wait,
            },
            {"If-None-Match": if_none_match},
            None,
        )
        return answer

    def record_purge(self, address: str, *, idempotency_key: str | None = None) -> None:
        """Purge a record.

        Requires `nameservice:admin`. The record is deleted, and no longer counted by the records that it refers to. Rejected while
        branches or graph sources depend on it, and while it is protected. A purge that was interrupted is finished by the next.
        """
        self._call("DELETE", "/v1/records/{address}", address, {}, {"Idempotency-Key": idempotency_key}, None)

    def head_reset(
        self, address: str, body: models.Snapshot, *, idempotency_key: str | None = None, allow_foreign: bool | None = None
    ) -> models.Record:
        """Reset a ledger.

        Requires `nameservice:admin`. Sets head and index, whatever is stored; the named graphs of
        the index are forgotten. Rejected while the record is protected.
        """
        answer: models.Record = self._call(
            "POST",
            "/v1/resets/{address}",
            address,
            {"allow_foreign": allow_foreign},
            {"Idempotency-Key": idempotency_key},
            body,
        )
        return answer

    def record_restore(self, address: str, *, idempotency_key: str | None = None) -> models.Record:
        """Restore a record.

        It is live again, in the state `ready`. Restoring a live record changes nothing.
        """
        answer: models.Record = self._call(
            "POST", "/v1/restorations/{address}", address, {}, {"Idempotency-Key": idempotency_key}, None
        )
        return answer

    def record_retract(
        self, address: str, body: models.Retraction | None = None, *, idempotency_key: str | None = None
    ) -> models.Record:
        """Retract a record.

        It stays readable, and rejects every push until it is restored. Rejected while branches or graph sources depend on
        it, and while it is protected. Retracting a retracted record changes nothing.
        """
        answer: models.Record = self._call(
            "POST", "/v1/retractions/{address}", address, {}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def search_get(
        self,
        *,
        q: str,
        kind: Literal["ledger", "graph_source"] | None = None,
        source_type: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        min_position: int | None = None,
        wait: int | None = None,
    ) -> models.Hits:
        """Search records.

        The best hits come first. For each word, a match of the whole address is best, then of a whole segment, the beginning of a
        segment, the beginning of a word in a segment, any part of the address; then of the type or state; last of the
        configuration. Secret values are not searched.

        A single machine (`serve`) and replicas answer from memory. On AWS an OpenSearch index answers if one is deployed: it follows
        the feed within about a second, and knows no position, so `min_position` is `501 unsupported` there. Other backends have no
        search (`501 unsupported`).
        """
        answer: models.Hits = self._call(
            "GET",
            "/v1/search",
            None,
            {
                "q": q,
                "kind": kind,
                "source_type": source_type,
                "state": state,
                "limit": limit,
                "cursor": cursor,
                "min_position": min_position,
                "wait": wait,
            },
            {},
            None,
        )
        return answer

    def snapshot_get(
        self,
        *,
        limit: int | None = None,
        prefix: str | None = None,
        cursor: str | None = None,
        min_position: int | None = None,
        wait: int | None = None,
    ) -> models.SnapshotPage:
        """Get a snapshot.

        Every record that exists throughout the scan is on exactly one page, as it was when that page was read.
        """
        answer: models.SnapshotPage = self._call(
            "GET",
            "/v1/snapshot",
            None,
            {"limit": limit, "prefix": prefix, "cursor": cursor, "min_position": min_position, "wait": wait},
            {},
            None,
        )
        return answer

    def status_push(
        self, address: str, body: models.StatusPush, *, idempotency_key: str | None = None
    ) -> models.PushAnswerStatus:
        """Change the status of a record.

        `expected` names the stored `v`, and optionally the state or payload. The new payload replaces the old one, except for
        a lease, which has operations of its own.
        """
        answer: models.PushAnswerStatus = self._call(
            "PUT", "/v1/statuses/{address}", address, {}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer

    def transaction_commit(
        self, body: models.Transaction, *, idempotency_key: str | None = None, allow_foreign: bool | None = None
    ) -> models.TransactionAnswer:
        """Commit a transaction.

        Up to 48 pushes and checks over any records, no two about the same concern of the same record. Either all are
        applied, or none is, and `results` shows the outcome of each.
        """
        answer: models.TransactionAnswer = self._call(
            "POST", "/v1/transactions", None, {"allow_foreign": allow_foreign}, {"Idempotency-Key": idempotency_key}, body
        )
        return answer
