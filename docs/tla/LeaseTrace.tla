----------------------------- MODULE LeaseTrace ------------------------------
(* Whether what processes did with a lease, and were answered, is a behaviour of Lease. The log has when each call began and *)
(* ended, and the time that its service read. Where it took effect between the two, and whether one without an answer did,  *)
(* is not known: the checker looks for it. A request whose reply was lost is sent again. The status remembers four calls    *)
(* (Ring.tla): a call that four others have followed is new to it, and takes effect again or is rejected. The .cfg of a     *)
(* trace has its constants; the tests write it (tests/dynamodb/traces/lease.rs).                                            *)
EXTENDS Lease, Sequences

CONSTANTS
    Log,        \* calls that begin, and that end with their answer: "done", "rejected" or "none"; in order of time
    Final       \* the lease in the end: its token, and, if it is held, its holder and expiry

VARIABLES
    at,         \* how many events of the log are explained
    doing,      \* the call that each process is making
    done,       \* the outcome of that call: "nothing" yet, "done" or "rejected"
    since       \* how many writes of the status have followed the last one of each process, at most Slots
trace == <<at, doing, done, since>>
Slots == 4

HasMore == at < Len(Log)
Event == Log[at + 1]
Idle == [kind |-> "none"]
Under(p) == [by |-> p, token |-> doing[p].token, began |-> doing[p].time]

Began ==
    /\ HasMore /\ Event.kind # "end"
    /\ doing' = [doing EXCEPT ![Event.by] = Event] /\ done' = [done EXCEPT ![Event.by] = "nothing"]
    /\ at' = at + 1 /\ UNCHANGED <<vars, since>>
Ended ==
    /\ HasMore /\ Event.kind = "end"
    /\ Event.answer \in {done[Event.by], "none"}
    /\ (Event.answer = "done" /\ doing[Event.by].kind = "acquire") => claim[Event.by] = Event.token
    /\ doing' = [doing EXCEPT ![Event.by] = Idle] /\ done' = [done EXCEPT ![Event.by] = "nothing"]
    /\ at' = at + 1 /\ UNCHANGED <<vars, since>>

\* The clock of the service that takes the call is set to the time that it reads.
Sets(p) ==
    /\ doing[p] # Idle /\ done[p] = "nothing" /\ now # doing[p].time /\ now' = doing[p].time
    /\ UNCHANGED <<holder, until, token, claim, owner, pushes, published, trace>>

IsClaimedBy(p) == holder = Holder[p] /\ token = doing[p].token
Becomes(p, outcome) == done' = [done EXCEPT ![p] = outcome] /\ UNCHANGED <<at, doing, since>>
Writes(p) ==
    /\ done' = [done EXCEPT ![p] = "done"] /\ UNCHANGED <<at, doing>>
    /\ since' = [q \in Processes |-> IF q = p THEN 0 ELSE IF since[q] < Slots THEN since[q] + 1 ELSE Slots]
Forgotten(p) ==
    /\ done[p] = "done" /\ doing[p].kind # "push" /\ since[p] = Slots
    /\ done' = [done EXCEPT ![p] = "nothing"] /\ UNCHANGED <<vars, at, doing, since>>
Takes(p) ==
    /\ done[p] = "nothing" /\ doing[p] # Idle /\ now = doing[p].time
    /\ \/ doing[p].kind = "acquire" /\ Acquire(p) /\ Writes(p)
       \/ doing[p].kind = "acquire" /\ ~IsFree(p) /\ Becomes(p, "rejected") /\ UNCHANGED vars
       \/ doing[p].kind = "refresh" /\ claim[p] = doing[p].token /\ Refresh(p) /\ Writes(p)
       \/ doing[p].kind = "release" /\ claim[p] = doing[p].token /\ Release(p) /\ Writes(p)
       \/ doing[p].kind \in {"refresh", "release"} /\ ~IsClaimedBy(p) /\ Becomes(p, "rejected") /\ UNCHANGED vars
       \/ doing[p].kind = "push" /\ Apply(Under(p)) /\ Becomes(p, "done")
       \/ doing[p].kind = "push" /\ ~(IsClaimedBy(p) /\ until > now) /\ Becomes(p, "rejected") /\ UNCHANGED vars

TraceInit == Init /\ at = 0 /\ doing = [p \in Processes |-> Idle] /\ done = [p \in Processes |-> "nothing"]
    /\ since = [p \in Processes |-> 0]
TraceNext == Began \/ Ended \/ \E p \in Processes : Sets(p) \/ Takes(p) \/ Forgotten(p)
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, trace>>

\* Tokens only grow.
Fits == token <= Final.token

\* An "invariant" that a behaviour with this log and this end violates. Where it holds, there is none.
Unexplained ==
    \/ HasMore \/ token # Final.token \/ holder # Final.holder
    \/ (Final.holder # NobodysLease /\ until # Final.until)
=============================================================================
