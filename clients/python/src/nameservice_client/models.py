"""The values of the wire, as dictionaries with types.

Made by .ci/generate from the service's OpenAPI document: do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from typing_extensions import NotRequired, TypedDict


class BranchDropped(TypedDict):
    """
    The result of dropping a branch.
    """

    parent_branches: int
    """
    How many branches its source has left.
    """


class Branches(TypedDict):
    """
    A page of branches.
    """

    branches: list[Record]
    """
    The branches of this page.
    """
    cursor: NotRequired[str | None]
    """
    Send it as `cursor` for the next page; absent on the last.
    """


class Capabilities(TypedDict):
    """
    The capabilities of a backend. A request that needs one it lacks is answered with 501 `unsupported`, naming it.
    """

    leases: bool
    """
    Leases with fencing tokens.
    """
    leased_index_pushes: bool
    """
    Index pushes that are valid only under a lease.
    """
    atomic_references: bool
    """
    References are counted and enforced atomically with the write that adds or removes them; otherwise they are
    checked before it.
    """
    transactions: bool
    """
    Transactions over several records.
    """
    named_graphs: bool
    """
    Indexes of named graphs.
    """
    any_address: bool
    """
    Addresses of any form that the grammar allows.
    """
    search: NotRequired[bool]
    """
    Search by words: `GET /v1/search`.
    """
    lost_replies: str
    """
    How a repeated write is recognised: `request_ids` (every concern remembers its last four writes), or
    `stored_values` (the same, until another program rebuilds what holds them; then the stored value decides).
    """
    feed: str
    """
    Where the changes of the feed come from: `stream` (every write is a change), or `comparison` (several writes of
    one concern by another program may be one change).
    """


class Change(TypedDict):
    """
    One entry of the change feed.
    """

    position: int
    """
    Its position in the feed: 1, 2, 3, … without a gap.
    """
    address: str
    """
    `name:branch`.
    """
    kind: Literal["ledger", "graph_source"]
    """
    What the record describes.
    """
    name: str
    """
    The part of the address before the `:`.
    """
    branch: str
    """
    The part of the address after the `:`.
    """
    source_type: NotRequired[str | None]
    """
    The type of a graph source, such as `f:Bm25Index`.
    """
    concern: Literal["meta", "head", "index", "status", "config"]
    """
    The part of the record that changed.
    """
    change: Literal["created", "updated", "reset", "retracted", "restored", "purged"]
    """
    How it changed.
    """
    watermark: int
    """
    The watermark after the change; 0 for `meta`, and if no value is left.
    """
    previous: NotRequired[int | None]
    """
    The watermark before the change, if there was one.
    """
    payload: NotRequired[dict[str, Any] | None]
    """
    The value after the change, secrets redacted: `{id, t}` for a head, `{id, t, rev, graphs?}` for an index, the
    payload of a status or a config, `{retracted, source_type?, dependencies?, source_branch?}` for `meta`. Absent if
    no value is left.
    """
    payload_omitted: NotRequired[bool]
    """
    Whether the payload was left out because it is larger than 16 KiB or cannot be read: read the record.
    """
    occurred_at: str
    """
    When the writer wrote it, RFC 3339 in UTC.
    """
    recorded_at: str
    """
    When it was appended to the feed, RFC 3339 in UTC.
    """


class Changes(TypedDict):
    """
    A stretch of the feed.
    """

    changes: list[Change]
    """
    The changes, in the order of the feed.
    """
    position: int
    """
    The feed was read up to this position: send it as `after` to continue.
    """


class Check(TypedDict):
    """
    Writes nothing; the concern must have this value.
    """

    concern: Literal["head", "index", "status", "config"]
    """
    Which concern.
    """
    expected: dict[str, Any]
    """
    Its value, as a push of that concern expects it.
    """
    op: Literal["check"]
    address: str
    """
    The record.
    """


class Claim(TypedDict):
    """
    The lease that a push is made under.
    """

    name: str
    """
    The name of the lease.
    """
    holder: str
    """
    Who holds it.
    """
    token: int
    """
    The token it was granted with.
    """


class Comparison(TypedDict):
    """
    The differences between the records and what the caller knows of them.
    """

    changed: dict[str, Moved]
    """
    By full address, the current values of the concerns that have moved. Records in which nothing has moved are left
    out.
    """
    unknown: list[str]
    """
    The addresses with no record, with none that the caller may see, or with one of another kind or type.
    """
    retracted: NotRequired[list[str]]
    """
    The records that are retracted; absent if there are none.
    """
    position: int
    """
    The position of the change feed before the records were read: continue from here with `/v1/changes`.
    """


class Config(TypedDict):
    """
    The configuration of a record.
    """

    v: int
    """
    Counts the changes; 0 while there is none.
    """
    payload: dict[str, Any] | None
    """
    The configuration; null while there is none.
    """


class ConfigPush(TypedDict):
    """
    Changes the configuration of a ledger.
    """

    expected: ExpectedConfig
    """
    The config that must be stored now.
    """
    new: NewConfig
    """
    The new config.
    """
    lease: NotRequired[Claim | None]


class ExpectedConfig(TypedDict):
    """
    A config that must be stored now: `{v: 0}` for none.
    """

    v: int
    """
    Its `v`.
    """
    payload: NotRequired[dict[str, Any] | None]
    """
    Compared too, if given.
    """


class ExpectedIndex(TypedDict):
    """
    An index that must be stored now: `{id, t}`, or `{id: null, t: 0}` for none.
    """

    id: NotRequired[str | None]
    """
    The index root.
    """
    t: int
    """
    The `t` that it covers.
    """
    rev: NotRequired[int | None]
    """
    The `rev` as the service returned it; not compared, since id and `t` identify an index. Without it, a repeated push at the
    same `t` is outcome unknown if others have replaced the index since.
    """
    graphs: NotRequired[dict[str, Graphs | None]]


class ExpectedStatus(TypedDict):
    """
    A status that must be stored now.
    """

    v: int
    """
    Its `v`.
    """
    payload: NotRequired[dict[str, Any] | None]
    """
    Its `state` and any other members that are given, which are compared too. A lease in it is not compared.
    """


class FlureeDiscovery(TypedDict):
    """
    What Fluree's command-line tool asks a server for when it becomes a remote.
    """

    version: int
    """
    The version of this document.
    """
    api_base_url: str
    """
    The path below which Fluree's routes are.
    """
    auth: NotRequired[FlureeDiscoveryAuth | None]


class FlureeDiscoveryAuth(TypedDict):
    """
    How to get a token.
    """

    type: str
    """
    `token`: the user has one, and passes it to `fluree auth login --token`.
    """


class FlureeEventGraphSource(TypedDict):
    """
    A graph source inside an event: its type as it is stored, and its configuration without secrets.
    """

    graph_source_id: str
    """
    `name:branch`.
    """
    name: str
    """
    The part before the `:`.
    """
    branch: str
    """
    The part after the `:`.
    """
    source_type: str
    """
    Its type, such as `f:Bm25Index`.
    """
    config: str
    """
    Its configuration as JSON text, secrets redacted.
    """
    dependencies: list[str]
    """
    What it depends on.
    """
    index_id: NotRequired[str | None]
    """
    Its index root.
    """
    index_t: int
    """
    The `t` that it covers; 0 while there is none.
    """
    retracted: bool
    """
    Soft-deleted.
    """


class FlureeEventNsRecord(TypedDict):
    """
    The current record.
    """

    kind: Literal["ledger", "graph-source"]
    """
    What it describes.
    """
    resource_id: str
    """
    `name:branch`.
    """
    record: FlureeLedger | FlureeEventGraphSource
    """
    The whole record.
    """
    emitted_at: str
    """
    When this was sent, RFC 3339 in UTC.
    """
    action: Literal["ns-record"]


class FlureeEventNsRetracted(TypedDict):
    """
    The record was retracted, or is gone.
    """

    kind: Literal["ledger", "graph-source"]
    """
    What it described.
    """
    resource_id: str
    """
    `name:branch`.
    """
    emitted_at: str
    """
    When this was sent, RFC 3339 in UTC.
    """
    action: Literal["ns-retracted"]


FlureeEvent: TypeAlias = FlureeEventNsRecord | FlureeEventNsRetracted
"""
An event of a stream that follows records.
"""


class FlureeGraphSource(TypedDict):
    """
    A graph source in Fluree's format.
    """

    graph_source_id: str
    """
    `name:branch`.
    """
    name: str
    """
    The part before the `:`.
    """
    branch: str
    """
    The part after the `:`.
    """
    source_type: (
        Literal["Bm25"] | Literal["Vector"] | Literal["Geo"] | Literal["R2rml"] | Literal["Iceberg"] | FlureeSourceType1
    )
    """
    Its type, one of Fluree's own or `{"Unknown": "<type>"}`.
    """
    config: str
    """
    Its configuration as JSON text.
    """
    dependencies: list[str]
    """
    What it depends on.
    """
    index_id: NotRequired[str | None]
    """
    Its index root.
    """
    index_t: int
    """
    The `t` that it covers; 0 while there is none.
    """
    retracted: bool
    """
    Soft-deleted.
    """


class FlureeInit(TypedDict):
    """
    The outcome of an `init`.
    """

    created: bool
    """
    Whether the ledger did not exist before.
    """


class FlureeLedger(TypedDict):
    """
    A ledger in Fluree's format.
    """

    ledger_id: str
    """
    `name:branch`.
    """
    name: str
    """
    The part before the `:`.
    """
    branch: str
    """
    The part after the `:`.
    """
    commit_head_id: NotRequired[str | None]
    """
    The latest commit.
    """
    commit_t: int
    """
    Its `t`; 0 while there is none.
    """
    index_head_id: NotRequired[str | None]
    """
    The latest index root.
    """
    index_t: int
    """
    The `t` that it covers; 0 while there is none.
    """
    default_context: NotRequired[str | None]
    """
    The content id of the default context.
    """
    retracted: bool
    """
    Soft-deleted.
    """
    config_id: NotRequired[str | None]
    """
    The content id of the configuration.
    """
    source_branch: NotRequired[str | None]
    """
    The branch it was created from.
    """
    branches: NotRequired[int]
    """
    How many branches were created from it; left out while there are none.
    """


class FlureePush(TypedDict):
    """
    Moves a ref.
    """

    expected: NotRequired[FlureeRef | None]
    new: FlureeRef
    """
    The new value.
    """


class FlureePushAnswerConflict(TypedDict):
    """
    Nothing was written.
    """

    actual: NotRequired[FlureeRef | None]
    status: Literal["conflict"]


class FlureePushAnswerUpdated(TypedDict):
    """
    It is stored.
    """

    ref: FlureeRef
    """
    The stored value.
    """
    status: Literal["updated"]


class FlureeRef(TypedDict):
    """
    Where a ref points: `{id: null, t: 0}` while it points nowhere.
    """

    id: NotRequired[str | None]
    """
    The commit or index root.
    """
    t: int
    """
    Its `t`.
    """


FlureeRefAnswer: TypeAlias = FlureeInit | FlureePushAnswerUpdated | FlureePushAnswerConflict
"""
The answer to a request to a ref.
"""


class FlureeSnapshot(TypedDict):
    """
    All records.
    """

    ledgers: list[FlureeLedger]
    """
    The ledgers.
    """
    graph_sources: list[FlureeGraphSource]
    """
    The graph sources.
    """


class FlureeSourceType1(TypedDict):
    """
    Any other, as stored.
    """

    Unknown: str
    """
    Any other, as stored.
    """


class GraphSource(TypedDict):
    """
    Creates a graph source, or replaces its configuration.
    """

    source_type: str
    """
    Its type, without control characters. That of an existing graph source does not change.
    """
    config: dict[str, Any]
    """
    Its configuration, opaque to the nameservice.
    """
    dependencies: NotRequired[list[str] | None]
    """
    The addresses that it depends on, at most 24. If left out, an existing graph source keeps its own.
    """
    expected_v: NotRequired[int | None]
    """
    The `v` of the config that must be stored now; 0 if the graph source must not exist.
    """
    v: NotRequired[int | None]
    """
    The `v` that the config gets, greater than the current one; by default, one more.
    """


class Graphs(TypedDict):
    """
    The index of a named graph.
    """

    id: str
    """
    The index root.
    """
    t: int
    """
    The `t` that it covers.
    """
    rev: NotRequired[int | None]
    """
    How many times this `t` was indexed again. If left out of a new value, the service counts it; it is required in
    an expected value, if it is compared.
    """


class Graphs1(TypedDict):
    """
    Where the latest index of a named graph is.
    """

    id: str
    """
    The index root.
    """
    t: int
    """
    The `t` that it covers.
    """
    rev: int
    """
    How many times this `t` was indexed again.
    """


class Graphs2(TypedDict):
    """
    The index of a named graph.
    """

    id: str
    """
    The index root.
    """
    t: int
    """
    The `t` that it covers.
    """
    rev: NotRequired[int | None]
    """
    How many times this `t` was indexed again. If left out of a new value, the service counts it; it is required in
    an expected value, if it is compared.
    """


class Graphs3(TypedDict):
    """
    Where the latest index of a named graph is.
    """

    id: str
    """
    The index root.
    """
    t: int
    """
    The `t` that it covers.
    """
    rev: int
    """
    How many times this `t` was indexed again.
    """


class Head(TypedDict):
    """
    Where the latest commit of a ledger is.
    """

    id: str | None
    """
    The commit; null while there is none.
    """
    t: int
    """
    Its `t`; 0 while there is none.
    """


class HeadPush(TypedDict):
    """
    Moves the head of a ledger.
    """

    expected: NotRequired[HeadValue | None]
    new: HeadValue
    """
    The new head, with a `t` greater than the stored one.
    """
    lease: NotRequired[Claim | None]


class HeadValue(TypedDict):
    """
    A head: `{id, t}`, or `{id: null, t: 0}` for none.
    """

    id: NotRequired[str | None]
    """
    The commit.
    """
    t: int
    """
    Its `t`.
    """


class Health(TypedDict):
    """
    The answer of a running service.
    """

    status: str
    """
    `ok`, or `degraded`: it answers, and needs attention
    """
    reason: NotRequired[str | None]
    """
    Why it needs attention
    """
    capabilities: Capabilities
    """
    What the backend can do
    """


class Held(TypedDict):
    """
    A lease that was granted.
    """

    lease: Lease
    """
    The lease.
    """
    token: int
    """
    The fencing token: send it with every push, and with every refresh.
    """


class History(TypedDict):
    """
    The changes of one record.
    """

    changes: list[Change]
    """
    The changes, in the requested order.
    """
    position: NotRequired[int | None]
    """
    Send it as `after` (with `order=newest`, as `before`) to continue; absent if nothing more follows yet.
    """


class Hit(TypedDict):
    """
    A record that was found.
    """

    address: str
    """
    `name:branch`.
    """
    kind: Literal["ledger", "graph_source"]
    """
    What it describes.
    """
    name: str
    """
    The part of the address before the `:`.
    """
    branch: str
    """
    The part of the address after the `:`.
    """
    retracted: bool
    """
    Soft-deleted.
    """
    source_type: NotRequired[str | None]
    """
    The type of a graph source.
    """
    state: str
    """
    Its state.
    """
    matched: list[Literal["address", "source_type", "state", "config"]]
    """
    Where the words were found.
    """
    rank: int
    """
    How well it matches; 0 is the best match.
    """


class Hits(TypedDict):
    """
    A page of search results, best first.
    """

    hits: list[Hit]
    """
    What was found.
    """
    cursor: NotRequired[str | None]
    """
    Send it as `cursor` for the next page; absent on the last.
    """


class Index(TypedDict):
    """
    Where the latest index of a record is.
    """

    id: str | None
    """
    The index root; null while there is none.
    """
    t: int
    """
    The `t` that it covers; 0 while there is none.
    """
    rev: int
    """
    How many times this `t` was indexed again.
    """
    graphs: NotRequired[dict[str, Graphs1 | None]]


class IndexPush(TypedDict):
    """
    Moves the index of a record.
    """

    expected: NotRequired[ExpectedIndex | None]
    new: NewIndex
    """
    The new index. Its `t` may equal that of `expected`: the same data, indexed again.
    """
    allow_equal: NotRequired[bool]
    """
    Without `expected`: also replace an index at the same `t`. Needs `nameservice:admin`.
    """
    lease: NotRequired[Claim | None]


class Lease(TypedDict):
    """
    A lease.
    """

    name: str
    """
    The name of the lease.
    """
    holder: str
    """
    Who holds it.
    """
    target_t: NotRequired[int | None]
    """
    The `t` that the holder works towards.
    """
    acquired_at: int
    """
    When it was acquired, epoch seconds.
    """
    expires_at: int
    """
    When it expires, epoch seconds.
    """
    refreshed_at: NotRequired[int | None]
    """
    When it was last refreshed, epoch seconds.
    """


class Moved(TypedDict):
    """
    The concerns of a record that have moved, forward or, after a reset, back.
    """

    head: NotRequired[Head | None]
    index: NotRequired[Index | None]
    status: NotRequired[Status | None]
    config: NotRequired[Config | None]


class NewBranch(TypedDict):
    """
    Creates a branch of a ledger.
    """

    name: str
    """
    The name that both branches share.
    """
    branch: str
    """
    The branch to create.
    """
    source: str
    """
    The branch to start from.
    """
    at: NotRequired[HeadValue | None]


class NewConfig(TypedDict):
    """
    A new config.
    """

    v: NotRequired[int | None]
    """
    By default one more than the stored one; always greater.
    """
    payload: dict[str, Any]
    """
    The configuration. Replaces the stored one. `default_context_id` is a content id.
    """


class NewIndex(TypedDict):
    """
    A new index.
    """

    id: NotRequired[str | None]
    """
    The index root.
    """
    t: int
    """
    The `t` that it covers.
    """
    graphs: NotRequired[dict[str, Graphs2 | None]]


class NewLedger(TypedDict):
    """
    Creates a ledger.
    """

    address: str
    """
    `name:branch`; `mydb` means `mydb:main`.
    """
    head: NotRequired[HeadValue | None]
    config: NotRequired[dict[str, Any] | None]
    """
    Its configuration.
    """


class NewProtection(TypedDict):
    """
    Protects a record, or removes its protection.
    """

    protected: bool
    """
    Whether to protect the record.
    """


class NewStatus(TypedDict):
    """
    A new status.
    """

    v: NotRequired[int | None]
    """
    By default one more than the stored one; always greater.
    """
    payload: dict[str, Any]
    """
    `state` and any other members. Replaces the stored payload.
    """


class OperationResult(TypedDict):
    """
    The result of one operation.
    """

    status: Literal["updated", "passed", "stale", "conflict", "unknown-record", "retracted", "wrong-kind", "lease-lost"]
    """
    Its outcome.
    """
    value: NotRequired[dict[str, Any] | None]
    """
    The value that it stored.
    """
    actual: NotRequired[dict[str, Any] | None]
    """
    The stored value that it conflicts with; null if there is none.
    """
    lease: NotRequired[Lease | None]
    replayed: NotRequired[bool]
    """
    Whether the value was already stored when this request arrived.
    """


class PageListed(TypedDict):
    """
    A page of records.
    """

    records: list[Summary | Record]
    """
    The records of this page.
    """
    cursor: NotRequired[str | None]
    """
    Send it as `cursor` for the next page; absent on the last.
    """


class Problem(TypedDict):
    """
    A rejection (RFC 9457). Some carry more members: `field`, `actual`, `dependents`, `missing`.
    """

    type: str
    """
    A stable URI that identifies the kind of problem.
    """
    title: str
    """
    The kind of problem in words.
    """
    status: int
    """
    The status code of the answer.
    """
    detail: str
    """
    What was wrong in this case.
    """


class Protection(TypedDict):
    """
    Whether a record is protected now.
    """

    address: str
    """
    `name:branch`.
    """
    protected: bool
    """
    Whether the record is protected from retraction, purge and reset.
    """


class PushAnswerConfig(TypedDict):
    """
    The answer to a push.
    """

    status: Literal["updated", "stale"]
    """
    The outcome.
    """
    value: Value
    """
    The configuration of a record.
    """
    replayed: NotRequired[bool]
    """
    Whether the value was already stored when this request arrived.
    """


class PushAnswerHead(TypedDict):
    """
    The answer to a push.
    """

    status: Literal["updated", "stale"]
    """
    The outcome.
    """
    value: Value1
    """
    Where the latest commit of a ledger is.
    """
    replayed: NotRequired[bool]
    """
    Whether the value was already stored when this request arrived.
    """


class PushAnswerIndex(TypedDict):
    """
    The answer to a push.
    """

    status: Literal["updated", "stale"]
    """
    The outcome.
    """
    value: Value2
    """
    Where the latest index of a record is.
    """
    replayed: NotRequired[bool]
    """
    Whether the value was already stored when this request arrived.
    """


class PushAnswerStatus(TypedDict):
    """
    The answer to a push.
    """

    status: Literal["updated", "stale"]
    """
    The outcome.
    """
    value: Value3
    """
    The state of a record.
    """
    replayed: NotRequired[bool]
    """
    Whether the value was already stored when this request arrived.
    """


class PushConfig(TypedDict):
    """
    Changes the config of a ledger.
    """

    expected: ExpectedConfig
    """
    The config that must be stored now.
    """
    new: NewConfig
    """
    The new config.
    """
    lease: NotRequired[Claim | None]
    op: Literal["push_config"]
    address: str
    """
    The record.
    """


class PushHead(TypedDict):
    """
    Moves a head.
    """

    expected: NotRequired[HeadValue | None]
    new: HeadValue
    """
    The new head, with a `t` greater than the stored one.
    """
    lease: NotRequired[Claim | None]
    op: Literal["push_head"]
    address: str
    """
    The record.
    """


class PushIndex(TypedDict):
    """
    Moves an index.
    """

    expected: NotRequired[ExpectedIndex | None]
    new: NewIndex
    """
    The new index. Its `t` may equal that of `expected`: the same data, indexed again.
    """
    allow_equal: NotRequired[bool]
    """
    Without `expected`: also replace an index at the same `t`. Needs `nameservice:admin`.
    """
    lease: NotRequired[Claim | None]
    op: Literal["push_index"]
    address: str
    """
    The record.
    """


class PushStatus(TypedDict):
    """
    Changes a status.
    """

    expected: ExpectedStatus
    """
    The status that must be stored now.
    """
    new: NewStatus
    """
    The new status.
    """
    lease: NotRequired[Claim | None]
    op: Literal["push_status"]
    address: str
    """
    The record.
    """


class Record(TypedDict):
    """
    Everything under one address.
    """

    address: str
    """
    `name:branch`.
    """
    kind: Literal["ledger", "graph_source"]
    """
    What it describes.
    """
    name: str
    """
    The part of the address before the `:`.
    """
    branch: str
    """
    The part of the address after the `:`.
    """
    retracted: bool
    """
    Soft-deleted.
    """
    protected: NotRequired[bool]
    """
    Present and true if the record cannot be retracted, purged or reset.
    """
    created_at: NotRequired[str | None]
    """
    When it was created, RFC 3339 in UTC; absent if Fluree has created it.
    """
    updated_at: str
    """
    When any of its items was last written, RFC 3339 in UTC.
    """
    source_branch: NotRequired[str | None]
    """
    The branch it was created from.
    """
    branches: int
    """
    How many branches were created from it.
    """
    dependents: int
    """
    How many graph sources depend on it.
    """
    source_type: NotRequired[str | None]
    """
    The type of a graph source, such as `f:Bm25Index`.
    """
    dependencies: NotRequired[list[str] | None]
    """
    What a graph source depends on; absent on ledgers.
    """
    head: NotRequired[Head | None]
    index: NotRequired[Index | None]
    status: NotRequired[Status | None]
    config: NotRequired[Config | None]


class Retraction(TypedDict):
    """
    Retracts a record.
    """

    reason: NotRequired[str | None]
    """
    The reason, to be shown in the record's status.
    """


class Snapshot(TypedDict):
    """
    Resets a ledger to a head and an index; `{id: null, t: 0}` means none.
    """

    head: HeadValue
    """
    The head.
    """
    index: HeadValue
    """
    The index.
    """


class SnapshotPage(TypedDict):
    """
    A page of a snapshot.
    """

    position: int
    """
    The position of the change feed before the first page was read: follow the feed from here.
    """
    records: list[Record]
    """
    The records of this page.
    """
    cursor: NotRequired[str | None]
    """
    Send it as `cursor` for the next page; absent on the last.
    """


class Status(TypedDict):
    """
    The state of a record.
    """

    v: int
    """
    Counts the changes, from 1.
    """
    payload: dict[str, Any]
    """
    `state`, and what the writer adds to it. A live lease is in it under its name.
    """


class StatusPush(TypedDict):
    """
    Changes the status of a record.
    """

    expected: ExpectedStatus
    """
    The status that must be stored now.
    """
    new: NewStatus
    """
    The new status.
    """
    lease: NotRequired[Claim | None]


class Subscription(TypedDict):
    """
    What the caller knows of a record. A concern is compared if its watermark or its id is given. If none is given, the
    whole record is returned.
    """

    kind: NotRequired[Literal["ledger", "graph_source"] | None]
    source_type: NotRequired[str | None]
    """
    The type of graph source that it must be.
    """
    commit_t: NotRequired[int | None]
    """
    The `t` of the head.
    """
    commit_id: NotRequired[str | None]
    """
    The commit; null for none.
    """
    index_t: NotRequired[int | None]
    """
    The `t` of the index.
    """
    index_id: NotRequired[str | None]
    """
    The index root, which also shows that the same `t` was indexed again; null for none.
    """
    status_v: NotRequired[int | None]
    """
    The `v` of the status.
    """
    config_v: NotRequired[int | None]
    """
    The `v` of the config.
    """


class Subscriptions(TypedDict):
    """
    What the caller knows of the records that it follows.
    """

    subscriptions: dict[str, Subscription]
    """
    By address, at most 1,000, each record once: `mydb` and `mydb:main` are the same.
    """


class Summary(TypedDict):
    """
    A record in a list, without its concerns.
    """

    address: str
    """
    `name:branch`.
    """
    kind: Literal["ledger", "graph_source"]
    """
    What it describes.
    """
    name: str
    """
    The part of the address before the `:`.
    """
    branch: str
    """
    The part of the address after the `:`.
    """
    retracted: bool
    """
    Soft-deleted.
    """
    source_type: NotRequired[str | None]
    """
    The type of a graph source.
    """
    dependencies: NotRequired[list[str] | None]
    """
    What a graph source depends on; absent on ledgers.
    """


Listed: TypeAlias = Summary | Record
"""
An entry of a list: a summary, or the whole record if `view=full` asks for it.
"""


class Transaction(TypedDict):
    """
    Several operations, all or none.
    """

    operations: list[PushHead | PushIndex | PushStatus | PushConfig | Check]
    """
    At most 48, no two about the same concern of the same record.
    """


class TransactionAnswer(TypedDict):
    """
    The result of each operation, in order.
    """

    results: list[OperationResult]
    """
    One per operation.
    """


class Value(TypedDict):
    """
    The configuration of a record.
    """

    v: int
    """
    Counts the changes; 0 while there is none.
    """
    payload: dict[str, Any] | None
    """
    The configuration; null while there is none.
    """


class Value1(TypedDict):
    """
    Where the latest commit of a ledger is.
    """

    id: str | None
    """
    The commit; null while there is none.
    """
    t: int
    """
    Its `t`; 0 while there is none.
    """


class Value2(TypedDict):
    """
    Where the latest index of a record is.
    """

    id: str | None
    """
    The index root; null while there is none.
    """
    t: int
    """
    The `t` that it covers; 0 while there is none.
    """
    rev: int
    """
    How many times this `t` was indexed again.
    """
    graphs: NotRequired[dict[str, Graphs3 | None]]


class Value3(TypedDict):
    """
    The state of a record.
    """

    v: int
    """
    Counts the changes, from 1.
    """
    payload: dict[str, Any]
    """
    `state`, and what the writer adds to it. A live lease is in it under its name.
    """


class Wanted(TypedDict):
    """
    Takes a lease, or extends one.
    """

    name: str
    """
    The name of the lease.
    """
    holder: str
    """
    The name of the holder. If a holder of this name already has the lease, it is taken over.
    """
    token: NotRequired[int | None]
    """
    The token of the lease to extend; if left out, the lease is taken.
    """
    ttl_seconds: NotRequired[int | None]
    """
    How long the lease lasts, in seconds.
    """
    target_t: NotRequired[int | None]
    """
    The `t` that the holder works towards.
    """
    meta: NotRequired[dict[str, Any] | None]
    """
    Metadata for the status, such as `progress`: the same write stores it in place of the status's current metadata.
    """
