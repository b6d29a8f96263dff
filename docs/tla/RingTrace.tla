------------------------------ MODULE RingTrace ------------------------------
(* Whether what pushes of one head did and were answered is a behaviour of Ring. The log has when each began and ended; which *)
(* requests arrived, how often, and which of them or of their replies were lost, is not known: the checker looks for it.     *)
(* The .cfg of a trace has its constants; the tests write it (tests/dynamodb/traces/ring.rs).                                *)
EXTENDS Ring

CONSTANTS
    Log,        \* pushes that begin, with the version they expect, and that end, with their answer; in order of time
    Written     \* the call that wrote each version, in the end

VARIABLE at     \* how many events of the log are explained

HasMore == at < Len(Log)
Event == Log[at + 1]

Began ==
    /\ HasMore /\ Event.kind = "begin" /\ Event.expects <= version
    /\ sent' = sent \cup {Event.call} /\ expected' = [expected EXCEPT ![Event.call] = Event.expects]
    /\ UNCHANGED <<version, ring, doubt, answer, applied, since, wrong>>
    /\ at' = at + 1
Ended == HasMore /\ Event.kind = "end" /\ answer[Event.call] = Event.answer /\ at' = at + 1 /\ UNCHANGED vars
\* A request that comes after its answer, and changes nothing, need not be looked at.
Unlogged ==
    /\ \E c \in sent : LoseRequest(c) \/ Arrive(c) /\ (answer[c] = "none" \/ version' > version)
    /\ UNCHANGED at

TraceInit == Init /\ at = 0
TraceNext == Began \/ Ended \/ Unlogged
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at>>

\* What the end does not have was never written.
Fits == version <= Len(Written) /\ \A i \in 1..Len(ring) : ring[i] = Written[version + 1 - i]

\* An "invariant" that a behaviour with this log and this end violates. Where it holds, there is none.
Unexplained == HasMore \/ version # Len(Written)
=============================================================================
