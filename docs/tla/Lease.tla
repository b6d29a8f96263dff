------------------------------- MODULE Lease --------------------------------
(* The lease of one record and the pushes that are made under it (docs/specification.md, Leases). Processes pause for as *)
(* long as they like between any two steps, requests arrive late and more than once, and the clock is set arbitrarily.   *)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Processes,      \* those that want the lease
    Holder,         \* the name that each gives as holder; a process that is started again has its predecessor's
    Ttl, LastTime, LastToken,   \* how long a lease lasts; the bounds of the model
    ChecksToken,    \* FALSE, a planted fault: a push is checked against holder and expiry alone
    TokensGrow      \* FALSE, a planted fault: taking over an expired lease, or the holder's own, keeps the current token

VARIABLES
    now,            \* the service's clock
    holder, until,  \* the lease: whose it is ("none" where there is none), and when it expires
    token,          \* the last token that was given
    claim,          \* the token that each process has been given, 0 before it has one
    owner,          \* for the properties: the process that was given the lease last
    pushes,         \* the pushes in flight: whose, under which token, and when the service began with each
    published       \* the processes and tokens under which pushes were applied, with the owner and token of that moment
vars == <<now, holder, until, token, claim, owner, pushes, published>>

NobodysLease == "none"

Init ==
    /\ now = 0 /\ holder = NobodysLease /\ until = 0 /\ token = 0 /\ owner = NobodysLease
    /\ claim = [p \in Processes |-> 0] /\ pushes = {} /\ published = {}

SetClock == \E time \in 0..LastTime : now' = time /\ UNCHANGED <<holder, until, token, claim, owner, pushes, published>>

IsFree(p) == holder = NobodysLease \/ until <= now \/ holder = Holder[p]
Acquire(p) ==
    /\ IsFree(p) /\ token < LastToken
    /\ token' = IF TokensGrow \/ token = 0 \/ holder = NobodysLease THEN token + 1 ELSE token
    /\ holder' = Holder[p] /\ until' = now + Ttl /\ owner' = p
    /\ claim' = [claim EXCEPT ![p] = token']
    /\ UNCHANGED <<now, pushes, published>>

IsClaimed(p) == holder = Holder[p] /\ token = claim[p]
Refresh(p) == IsClaimed(p) /\ until' = now + Ttl /\ UNCHANGED <<now, holder, token, claim, owner, pushes, published>>
Release(p) ==
    /\ IsClaimed(p) /\ holder' = NobodysLease /\ owner' = NobodysLease
    /\ UNCHANGED <<now, until, token, claim, pushes, published>>

Push(p) ==
    /\ claim[p] > 0
    /\ pushes' = pushes \cup {[by |-> p, token |-> claim[p], began |-> now]}
    /\ UNCHANGED <<now, holder, until, token, claim, owner, published>>

\* One transaction applies the push and checks the lease. The request stays in flight: it may arrive again.
Apply(push) ==
    /\ holder = Holder[push.by] /\ until > push.began /\ (ChecksToken => token = push.token)
    /\ published' = published \cup {[by |-> push.by, token |-> push.token, owner |-> owner, current |-> token]}
    /\ UNCHANGED <<now, holder, until, token, claim, owner, pushes>>

Next ==
    \/ SetClock
    \/ \E p \in Processes : Acquire(p) \/ Refresh(p) \/ Release(p) \/ Push(p)
    \/ \E push \in pushes : Apply(push)
Spec == Init /\ [][Next]_vars

\* The bound of the model: two pushes in flight, three that were applied.
Small == Cardinality(pushes) <= 2 /\ Cardinality(published) <= 3

\* A process that was overtaken, by its own restart or by another, does not publish, however late its requests arrive.
NothingUnderAnOvertakenToken == \A push \in published : push.token = push.current
NothingByAnOvertakenProcess == \A push \in published : push.by = push.owner
=============================================================================
