------------------------------- MODULE Append -------------------------------
(* The change feed on DynamoDB (docs/specification.md, Change feed): consumers read a stream whose records are numbered  *)
(* in commit order, and append them. A consumer crashes anywhere, its successor begins while it still writes, every      *)
(* record is delivered again until its batch is done, and replies are lost.                                              *)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Consumers,
    Records,        \* how many records the stream has
    Batch, Chunk,   \* the most records of a delivery, and of a transaction
    ChecksSeen,     \* FALSE, a planted fault: a transaction does not look for the stream records that it appends
    ChecksCounter,  \* FALSE, a planted fault: it does not check that the counter, and so its positions, are as observed
    WaitsForAll     \* FALSE, a planted fault: a batch counts as done when its first transaction is

VARIABLES
    rows, counter,  \* the feed: which record has which position, and the last position
    done,           \* the stream need not deliver the records up to this one again
    first, last,    \* the batch of each consumer; from 1 to 0 where it has none
    observed,       \* the counter as each consumer knows it
    placed          \* the records of its batch that each consumer knows to be in the feed
vars == <<rows, counter, done, first, last, observed, placed>>

Positions == 1..(Records + Chunk)
Stream == 1..Records
Seen == {rows[at] : at \in Positions} \ {0}
ItemOf(record) == record % 2

Init ==
    /\ rows = [at \in Positions |-> 0] /\ counter = 0 /\ done = 0
    /\ first = [c \in Consumers |-> 1] /\ last = [c \in Consumers |-> 0]
    /\ observed = [c \in Consumers |-> 0] /\ placed = [c \in Consumers |-> {}]

\* A delivery begins at any record that is not yet done, or again at one that is.
Deliver(c) ==
    /\ last[c] = 0
    /\ \E from \in 1..(done + 1) : \E to \in from..(from + Batch - 1) :
        /\ to <= Records /\ first' = [first EXCEPT ![c] = from] /\ last' = [last EXCEPT ![c] = to]
    /\ UNCHANGED <<rows, counter, done, observed, placed>>

Pending(c) == (first[c]..last[c]) \ placed[c]
\* What the next transaction brings: the first records of the batch that are not known to be in the feed.
Chosen(c) == {r \in Pending(c) : Cardinality({earlier \in Pending(c) : earlier < r}) < Chunk}
PositionOf(c, r) == observed[c] + 1 + Cardinality({earlier \in Chosen(c) : earlier < r})

IsFree(c) == counter = observed[c] /\ \A r \in Chosen(c) : rows[PositionOf(c, r)] = 0
IsNew(c) == Chosen(c) \cap Seen = {}

Transact(c) ==
    /\ Pending(c) # {} /\ observed[c] + Cardinality(Chosen(c)) \in Positions
    /\ (ChecksCounter => IsFree(c)) /\ (ChecksSeen => IsNew(c))
    /\ rows' = [at \in Positions |->
        IF \E r \in Chosen(c) : PositionOf(c, r) = at THEN CHOOSE r \in Chosen(c) : PositionOf(c, r) = at ELSE rows[at]]
    /\ counter' = observed[c] + Cardinality(Chosen(c))
    /\ \/ placed' = [placed EXCEPT ![c] = @ \cup Chosen(c)] /\ observed' = [observed EXCEPT ![c] = counter']
       \/ UNCHANGED <<placed, observed>>    \* the reply is lost: the next attempt finds its rows
    /\ UNCHANGED <<done, first, last>>

\* A rejected transaction shows the counter if it has moved, and where the records are that were appended already.
Learn(c) ==
    /\ Pending(c) # {} /\ ~(IsFree(c) /\ IsNew(c))
    /\ observed' = [observed EXCEPT ![c] = counter]
    /\ placed' = [placed EXCEPT ![c] = @ \cup (Chosen(c) \cap Seen)]
    /\ UNCHANGED <<rows, counter, done, first, last>>

Forget(c) ==
    /\ first' = [first EXCEPT ![c] = 1] /\ last' = [last EXCEPT ![c] = 0] /\ placed' = [placed EXCEPT ![c] = {}]
    /\ UNCHANGED <<rows, counter, observed>>
Finish(c) ==
    /\ last[c] > 0 /\ (IF WaitsForAll THEN Pending(c) = {} ELSE placed[c] # {})
    /\ done' = (IF last[c] > done THEN last[c] ELSE done) /\ Forget(c)
Crash(c) == last[c] > 0 /\ Forget(c) /\ UNCHANGED done

Next == \E c \in Consumers : Deliver(c) \/ Transact(c) \/ Learn(c) \/ Finish(c) \/ Crash(c)
Spec == Init /\ [][Next]_vars

Dense == \A at \in Positions : rows[at] # 0 <=> at <= counter
Once == \A a, b \in Positions : a < b /\ rows[a] # 0 => rows[a] # rows[b]
InItemOrder == \A a, b \in 1..counter : a < b /\ ItemOf(rows[a]) = ItemOf(rows[b]) => rows[a] <= rows[b]
\* What need not be delivered again is in the feed.
NothingLost == \A r \in 1..done : r \in Seen
=============================================================================
