------------------------------ MODULE FeedTrace ------------------------------
(* Whether what consumers did and saw is a behaviour of FeedAppend. Each has its own log: how the steps of one interleave  *)
(* with those of another is not known, nor which transactions were rejected, repeated or applied without a reply. The      *)
(* checker looks for such steps. The .cfg of a trace has its constants; the tests write it (tests/dynamodb/feed/traces.rs). *)
EXTENDS FeedAppend

CONSTANTS
    Log,        \* of each consumer, in its order: batches delivered, batches finished with the places of their records, crashes
    Segments,   \* the records of the segment under each position, in the end; <<>> where there is none
    Places      \* the position of each record, in the end

VARIABLE at     \* how many events of each log are explained

HasMore(c) == at[c] < Len(Log[c])
Event(c) == Log[c][at[c] + 1]
Passes(c) == at' = [at EXCEPT ![c] = @ + 1]

Delivered(c) ==
    /\ HasMore(c) /\ Event(c).kind = "deliver" /\ last[c] = 0 /\ Event(c).first <= done + 1
    /\ first' = [first EXCEPT ![c] = Event(c).first] /\ last' = [last EXCEPT ![c] = Event(c).last]
    /\ UNCHANGED <<segments, history, counter, done, observed, placed>>
    /\ Passes(c)
Finished(c) ==
    /\ HasMore(c) /\ Event(c).kind = "finish" /\ Finish(c)
    /\ \A r \in first[c]..last[c] : history[r] = Event(c).places[1 + r - first[c]]
    /\ Passes(c)
Crashed(c) == HasMore(c) /\ Event(c).kind = "crash" /\ Crash(c) /\ Passes(c)
Unlogged(c) == (Transact(c) \/ Learn(c)) /\ UNCHANGED at

TraceInit == Init /\ at = [c \in Consumers |-> 0]
TraceNext == \E c \in Consumers : Delivered(c) \/ Finished(c) \/ Crashed(c) \/ Unlogged(c)
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at>>

\* Rows are never changed: what is not there in the end was never there.
Fits ==
    /\ \A p \in Positions : segments[p] \in {<<>>, Segments[p]}
    /\ \A r \in Stream : history[r] \in {0, Places[r]}

\* An "invariant" that a behaviour with these logs and this end violates. Where it holds, there is none.
Unexplained == (\E c \in Consumers : HasMore(c)) \/ segments # Segments \/ history # Places
=============================================================================
