----------------------------- MODULE FeedAppend -----------------------------
(* The change feed on DynamoDB (docs/specification.md, Change feed): consumers read a stream whose records are numbered  *)
(* in commit order, and append them. One transaction moves the counter, puts the segment of its changes, under the       *)
(* position of the last of them, and one row for each record: its guard, and its place in the history of its item. A     *)
(* consumer crashes anywhere, its successor begins while it still writes, every record is delivered again until its      *)
(* batch is done, and replies are lost.                                                                                  *)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS
    Consumers,
    Records,        \* how many records the stream has
    Batch, Chunk,   \* the most records of a delivery, and of a transaction
    ChecksSeen,     \* FALSE, a planted fault: a transaction does not look for the stream records that it appends
    ChecksCounter,  \* FALSE, a planted fault: it does not check that the counter, and so its positions, are as observed
    WaitsForAll,    \* FALSE, a planted fault: a batch counts as done when its first transaction is
    NamesTheLast    \* FALSE, a planted fault: a segment is put under the position of its first change

VARIABLES
    segments,       \* the records of the segment under each position; <<>> where there is none
    history,        \* the position that the row of each record has; 0 where there is no row
    counter,        \* the last position
    done,           \* the stream need not deliver the records up to this one again
    first, last,    \* the batch of each consumer; from 1 to 0 where it has none
    observed,       \* the counter as each consumer knows it
    placed          \* the records of its batch that each consumer knows to be in the feed
vars == <<segments, history, counter, done, first, last, observed, placed>>

Positions == 1..(Records + Chunk)
Stream == 1..Records
Seen == {r \in Stream : history[r] # 0}
ItemOf(record) == record % 2

Init ==
    /\ segments = [at \in Positions |-> <<>>] /\ history = [r \in Stream |-> 0] /\ counter = 0 /\ done = 0
    /\ first = [c \in Consumers |-> 1] /\ last = [c \in Consumers |-> 0]
    /\ observed = [c \in Consumers |-> 0] /\ placed = [c \in Consumers |-> {}]

\* A delivery begins at any record that is not yet done, or again at one that is.
Deliver(c) ==
    /\ last[c] = 0
    /\ \E from \in 1..(done + 1) : \E to \in from..(from + Batch - 1) :
        /\ to <= Records /\ first' = [first EXCEPT ![c] = from] /\ last' = [last EXCEPT ![c] = to]
    /\ UNCHANGED <<segments, history, counter, done, observed, placed>>

Pending(c) == (first[c]..last[c]) \ placed[c]
\* What a transaction of k changes appends: the first records of the batch that are not known to be in the feed.
Chosen(c, k) == {r \in Pending(c) : Cardinality({earlier \in Pending(c) : earlier < r}) < k}
PositionOf(c, k, r) == observed[c] + 1 + Cardinality({earlier \in Chosen(c, k) : earlier < r})
SegmentOf(c, k) == [i \in 1..k |-> CHOOSE r \in Chosen(c, k) : PositionOf(c, k, r) = observed[c] + i]
KeyOf(c, k) == IF NamesTheLast THEN observed[c] + k ELSE observed[c] + 1

IsFree(c, k) == counter = observed[c] /\ segments[KeyOf(c, k)] = <<>>
IsNew(c, k) == Chosen(c, k) \cap Seen = {}

\* If a segment would be too large, fewer changes are appended at once: any number is possible.
Transact(c) == \E k \in 1..Chunk :
    /\ k <= Cardinality(Pending(c)) /\ observed[c] + k \in Positions
    /\ (ChecksCounter => IsFree(c, k)) /\ (ChecksSeen => IsNew(c, k))
    /\ segments' = [segments EXCEPT ![KeyOf(c, k)] = SegmentOf(c, k)]
    /\ history' = [r \in Stream |-> IF r \in Chosen(c, k) THEN PositionOf(c, k, r) ELSE history[r]]
    /\ counter' = observed[c] + k
    /\ \/ placed' = [placed EXCEPT ![c] = @ \cup Chosen(c, k)] /\ observed' = [observed EXCEPT ![c] = counter']
       \/ UNCHANGED <<placed, observed>>    \* the reply is lost: the next attempt finds its rows
    /\ UNCHANGED <<done, first, last>>

\* A rejected transaction shows the counter if it has moved, and where the records are that were appended already.
Learn(c) == \E k \in 1..Chunk :
    /\ k <= Cardinality(Pending(c)) /\ observed[c] + k \in Positions /\ ~(IsFree(c, k) /\ IsNew(c, k))
    /\ observed' = [observed EXCEPT ![c] = counter]
    /\ placed' = [placed EXCEPT ![c] = @ \cup (Chosen(c, k) \cap Seen)]
    /\ UNCHANGED <<segments, history, counter, done, first, last>>

Forget(c) ==
    /\ first' = [first EXCEPT ![c] = 1] /\ last' = [last EXCEPT ![c] = 0] /\ placed' = [placed EXCEPT ![c] = {}]
    /\ UNCHANGED <<segments, history, counter, observed>>
Finish(c) ==
    /\ last[c] > 0 /\ (IF WaitsForAll THEN Pending(c) = {} ELSE placed[c] # {})
    /\ done' = (IF last[c] > done THEN last[c] ELSE done) /\ Forget(c)
Crash(c) == last[c] > 0 /\ Forget(c) /\ UNCHANGED done

Next == \E c \in Consumers : Deliver(c) \/ Transact(c) \/ Learn(c) \/ Finish(c) \/ Crash(c)
Spec == Init /\ [][Next]_vars

\* What a reader finds at a position: its Query begins with the first segment whose key is not below it.
Keys(p) == {key \in Positions : key >= p /\ segments[key] # <<>>}
RecordAt(p) ==
    IF Keys(p) = {} THEN 0 ELSE
    LET key == CHOOSE k \in Keys(p) : \A other \in Keys(p) : k <= other
        at == p + Len(segments[key]) - key
    IN IF at < 1 THEN 0 ELSE segments[key][at]
Feed == [p \in Positions |-> RecordAt(p)]

Dense == LET feed == Feed IN \A p \in Positions : feed[p] # 0 <=> p <= counter
Once == LET feed == Feed IN \A a, b \in 1..counter : a < b /\ feed[a] # 0 => feed[a] # feed[b]
InItemOrder == LET feed == Feed IN \A a, b \in 1..counter : a < b /\ ItemOf(feed[a]) = ItemOf(feed[b]) => feed[a] <= feed[b]
\* The history of an item has the changes of the feed, in the order of the feed.
HistoryAgrees == LET feed == Feed IN
    /\ \A p \in 1..counter : feed[p] # 0 => history[feed[p]] = p
    /\ \A a, b \in Seen : a < b /\ ItemOf(a) = ItemOf(b) => history[a] < history[b]
\* What need not be delivered again is in the feed.
NothingLost == LET feed == Feed IN \A r \in 1..done : \E p \in 1..counter : feed[p] = r
=============================================================================
