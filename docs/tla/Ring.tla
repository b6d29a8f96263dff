-------------------------------- MODULE Ring --------------------------------
(* One item and the calls that push it (docs/specification.md, Answers). Requests and replies are lost, attempts are    *)
(* repeated, and what was sent once may arrive again at any time. The item remembers the calls of its last four writes. *)
EXTENDS Naturals, Sequences

CONSTANTS
    Expecting,      \* calls that push on the condition of the version that their client has read
    Blind,          \* calls that any version satisfies: acquiring a lease again, an index at an equal t
    Writes,         \* the model ends after so many writes
    Slots,          \* how many calls the item remembers; 4
    LooksAtRing,    \* FALSE, a planted fault: neither condition nor judgement looks at the ring
    AdmitsDoubt     \* FALSE, a planted fault: a rejection after a lost reply is answered as a conflict

VARIABLES
    version, ring,  \* the item: how often it was written, and by which calls, the newest first
    sent,           \* the calls with a request in flight: it can arrive at any time, any number of times
    expected,       \* the version that each call expects
    doubt,          \* whether an attempt of the call had no answer
    answer,         \* what the call's client was told
    applied, since, \* for the properties: how often a call was applied, and how many writes of others came after it
    wrong           \* and what went wrong, which the final state does not show
vars == <<version, ring, sent, expected, doubt, answer, applied, since, wrong>>

Calls == Expecting \cup Blind

Init ==
    /\ version = 0 /\ ring = <<>> /\ sent = {} /\ wrong = {}
    /\ expected = [c \in Calls |-> 0] /\ doubt = [c \in Calls |-> FALSE] /\ answer = [c \in Calls |-> "none"]
    /\ applied = [c \in Calls |-> 0] /\ since = [c \in Calls |-> 0]

Remembered(c) == LooksAtRing /\ \E i \in 1..Len(ring) : ring[i] = c
Holds(c) == ~Remembered(c) /\ (c \in Blind \/ expected[c] = version)

Write(id) ==
    /\ version < Writes
    /\ version' = version + 1
    /\ ring' = SubSeq(<<id>> \o ring, 1, IF Len(ring) < Slots THEN Len(ring) + 1 ELSE Slots)
    /\ since' = [c \in Calls |-> IF c = id THEN 0 ELSE since[c] + 1]

Foreign == Write("foreign") /\ UNCHANGED <<sent, expected, doubt, answer, applied, wrong>>

Begin(c) ==
    /\ c \notin sent
    /\ sent' = sent \cup {c} /\ expected' = [expected EXCEPT ![c] = version]
    /\ UNCHANGED <<version, ring, doubt, answer, applied, since, wrong>>

LoseRequest(c) ==
    /\ c \in sent /\ answer[c] = "none"
    /\ doubt' = [doubt EXCEPT ![c] = TRUE]
    /\ UNCHANGED <<version, ring, sent, expected, answer, applied, since, wrong>>

Judged(c) ==
    IF Holds(c) \/ Remembered(c) THEN "updated" ELSE IF doubt[c] /\ AdmitsDoubt THEN "unknown" ELSE "conflict"

\* The table applies or rejects a request that arrives. The reply is lost (also when the call is over), or received.
Arrive(c) ==
    /\ c \in sent
    /\ \/ Holds(c) /\ Write(c) /\ applied' = [applied EXCEPT ![c] = @ + 1]
       \/ ~Holds(c) /\ UNCHANGED <<version, ring, since, applied>>
    /\ \/ doubt' = [doubt EXCEPT ![c] = TRUE] /\ answer' = answer
       \/ answer[c] = "none" /\ answer' = [answer EXCEPT ![c] = Judged(c)] /\ doubt' = doubt
    /\ wrong' = wrong
        \cup (IF Holds(c) /\ applied[c] > 0 /\ (c \in Expecting \/ since[c] < 4) THEN {"twice"} ELSE {})
        \cup (IF answer'[c] = "unknown" /\ answer[c] = "none" /\ applied[c] > 0 /\ since[c] < 4 THEN {"early"} ELSE {})
    /\ UNCHANGED <<sent, expected>>

Next == Foreign \/ \E c \in Calls : Begin(c) \/ LoseRequest(c) \/ Arrive(c)
Spec == Init /\ [][Next]_vars

\* A late duplicate never applies again; that of a call that expects no version, not before four writes of others.
AtMostOnce == "twice" \notin wrong
\* A conflict was not applied, and never will be.
NoFalseConflict == \A c \in Calls : answer[c] = "conflict" => applied[c] = 0
UpdatedIsWritten == \A c \in Calls : answer[c] = "updated" => applied[c] > 0
\* What was applied is answered with an unknown outcome only after four others have written.
UnknownOnlyAfterFour == "early" \notin wrong
=============================================================================
