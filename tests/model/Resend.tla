------------------------------- MODULE Resend -------------------------------
(* A dead letter that is sent again with another body, while others redrive its copies, take the resend back or send
   another body, beside a consumer with claims or without. docs/protocol.md has the rules in words,
   protocol/resend.py in Python. What Receiver.tla shows of one record is taken for granted: a write names the version
   that it replaces, whoever crashes is dead when its lease is over, and a lost answer is settled by a read.

   Body 0 is the letter's; body n has key n. A request that arrives late is an operator who was slow and then crashed. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    alice, bob, carol, c, d, \* names of operators and workers
    Workers,
    Act,         \* what each operator does: [verb, body, letter]
    Claims,      \* whether the consumer claims
    MostStarts,  \* deliveries
    MostCrashes,
    Without      \* rules that are left out, to see that they are needed

VARIABLES
    record,   \* of each key
    queue,    \* how many copies of each body there are
    ever,     \* the bodies that were ever queued: a standard queue may deliver each once more
    letters,  \* the copies of the dead letter
    operator, worker,
    done,     \* the bodies that took effect
    starts, crashes

vars == <<record, queue, ever, letters, operator, worker, done, starts, crashes>>
Operators == DOMAIN Act
Bodies == {0} \union {Act[o].body : o \in Operators}
Keeps(rule) == rule \notin Without

Idle == [at |-> "idle", body |-> 0, seen |-> 0, copy |-> FALSE]

Init ==
    /\ record = [k \in Bodies |-> IF k = 0 THEN [is |-> "failed", to |-> 0, version |-> 1]
                                 ELSE [is |-> "nothing", to |-> 0, version |-> 0]]
    /\ queue = [k \in Bodies |-> 0]
    /\ ever = {0}
    /\ letters = {Act[o].letter : o \in Operators}
    /\ operator = [o \in Operators |-> [at |-> "reading", seen |-> 0, to |-> 0]]
    /\ worker = [w \in Workers |-> Idle]
    /\ done = {}
    /\ starts = 0 /\ crashes = 0

-----------------------------------------------------------------------------
(* Records *)

Held(k) == \E w \in Workers : worker[w].at = "running" /\ worker[w].body = k /\ worker[w].seen = record[k].version
Free(k) == record[k].is \in {"nothing", "failed"} \/ (record[k].is = "claimed" /\ ~Held(k))
Over(k) == record[k].is \in {"completed", "resent", "closed"}
Open(k) == record[k].is \notin {"completed", "resent", "closed", "resending"} \/ ~Keeps("open")

Write(k, is, to) == [record EXCEPT ![k] = [is |-> is, to |-> to, version |-> @.version + 1]]
Sent(k) == [queue EXCEPT ![k] = @ + 1]

-----------------------------------------------------------------------------
(* Operators *)

Go(o, at) == operator' = [operator EXCEPT ![o].at = at]
See(o, at, version) == operator' = [operator EXCEPT ![o].at = at, ![o].seen = version]
Stays == UNCHANGED <<worker, done, starts, crashes>>
First == IF Keeps("order") THEN "sending" ELSE "completing"

(* The claim reads, decides and writes over what it has read, in one transaction with the check of the new key. *)
Claim(o) ==
    LET to == Act[o].body IN
    /\ Act[o].verb = "resend" /\ operator[o].at = "reading" /\ Act[o].letter \in letters
    /\ UNCHANGED <<queue, ever, letters>> /\ Stays
    /\ IF ~Keeps("claim") THEN See(o, First, record[0].version) /\ UNCHANGED record
       ELSE IF record[0].is = "resending" /\ record[0].to = to
       THEN See(o, First, record[0].version) /\ UNCHANGED record
       ELSE IF Free(0) /\ Open(to)
       THEN /\ record' = Write(0, "resending", to)
            /\ See(o, First, record'[0].version)
       ELSE Go(o, "over") /\ UNCHANGED record

SendNew(o) ==
    /\ operator[o].at = "sending" /\ Act[o].verb = "resend"
    /\ queue' = Sent(Act[o].body)
    /\ ever' = ever \union {Act[o].body}
    /\ Go(o, IF Keeps("order") THEN "completing" ELSE "deleting")
    /\ UNCHANGED <<record, letters>> /\ Stays

Complete(o) ==
    LET to == Act[o].body
        next == IF Keeps("order") THEN "deleting" ELSE "sending"
    IN
    /\ operator[o].at = "completing"
    /\ IF record[0].version = operator[o].seen
       THEN Go(o, next) /\ record' = Write(0, "resent", to)
       ELSE /\ UNCHANGED record
            /\ Go(o, IF (record[0].is = "resent" /\ record[0].to = to) \/ ~Keeps("settled") THEN next ELSE "over")
    /\ UNCHANGED <<queue, ever, letters>> /\ Stays

Delete(o) ==
    /\ operator[o].at = "deleting"
    /\ letters' = letters \ {Act[o].letter}
    /\ Go(o, "over")
    /\ UNCHANGED <<record, queue, ever>> /\ Stays

(* Both records in one transaction; what was read may have changed by then. *)
ReadClaim(o) ==
    /\ Act[o].verb = "take back" /\ operator[o].at = "reading" /\ record[0].is = "resending"
    /\ operator' = [operator EXCEPT ![o] = [at |-> "closing", seen |-> record[0].version, to |-> record[0].to]]
    /\ UNCHANGED <<record, queue, ever, letters>> /\ Stays

TakeBack(o) ==
    LET to == operator[o].to
        free == record[to].is = "nothing" \/ ~Keeps("free")
        back == Write(0, "failed", 0)
    IN
    /\ operator[o].at = "closing"
    /\ Go(o, "over")
    /\ record' = IF record[0].version # operator[o].seen \/ ~free THEN record
                 ELSE IF Keeps("closing")
                 THEN [back EXCEPT ![to] = [is |-> "closed", to |-> 0, version |-> @.version + 1]] ELSE back
    /\ UNCHANGED <<queue, ever, letters>> /\ Stays

(* A redrive drops what is done or goes on elsewhere, leaves what is resending, and sends all else. *)
ReadLetter(o) ==
    /\ Act[o].verb = "redrive" /\ operator[o].at = "reading" /\ Act[o].letter \in letters
    /\ Go(o, IF Over(0) THEN "deleting" ELSE IF record[0].is = "resending" THEN "over" ELSE "sending")
    /\ UNCHANGED <<record, queue, ever, letters>> /\ Stays

SendOld(o) ==
    /\ operator[o].at = "sending" /\ Act[o].verb = "redrive"
    /\ queue' = Sent(0)
    /\ Go(o, "deleting")
    /\ UNCHANGED <<record, ever, letters>> /\ Stays

-----------------------------------------------------------------------------
(* The consumer *)

Become(w, me) == worker' = [worker EXCEPT ![w] = me]
Same == UNCHANGED <<ever, letters, operator, crashes>>
Taken(me) == IF me.copy THEN [queue EXCEPT ![me.body] = @ - 1] ELSE queue

(* A copy of the queue, or a late duplicate, which leaves the copies alone. Without claims a first delivery runs unread;
   what is there is looked at by its commit. *)
Deliver(w, k, copy) ==
    /\ worker[w].at = "idle" /\ starts < MostStarts
    /\ IF copy THEN queue[k] > 0 /\ \A v \in Workers : ~(worker[v].copy /\ worker[v].body = k) ELSE k \in ever
    /\ starts' = starts + 1
    /\ IF Over(k)
       THEN UNCHANGED <<worker, record>> /\ queue' = IF copy THEN [queue EXCEPT ![k] = @ - 1] ELSE queue
       ELSE /\ UNCHANGED queue
            /\ IF Claims /\ Free(k)
               THEN /\ record' = Write(k, "claimed", 0)
                    /\ Become(w, [at |-> "running", body |-> k, seen |-> record'[k].version, copy |-> copy])
               ELSE /\ UNCHANGED record
                    /\ IF Claims THEN UNCHANGED worker
                       ELSE \E seen \in {0, record[k].version} :
                                /\ seen = record[k].version => record[k].is # "resending"
                                /\ Become(w, [at |-> "running", body |-> k, seen |-> seen, copy |-> copy])
    /\ UNCHANGED done /\ Same

(* Over exactly what was claimed, or read. *)
Settle(w, is) ==
    LET me == worker[w]
        fits == record[me.body].version = me.seen /\ (Claims \/ record[me.body].is \in {"nothing", "failed"})
    IN
    /\ me.at = "running"
    /\ record' = IF fits THEN Write(me.body, is, 0) ELSE record
    /\ done' = IF fits /\ is = "completed" THEN done \union {me.body} ELSE done
    /\ queue' = IF (fits /\ is = "completed") \/ Over(me.body) THEN Taken(me) ELSE queue
    /\ Become(w, Idle)
    /\ UNCHANGED starts /\ Same

-----------------------------------------------------------------------------

Crash ==
    /\ crashes < MostCrashes
    /\ crashes' = crashes + 1
    /\ \/ \E o \in Operators : operator[o].at \notin {"reading", "over"} /\ Go(o, "over") /\ UNCHANGED worker
       \/ \E w \in Workers : worker[w].at = "running" /\ Become(w, Idle) /\ UNCHANGED operator
    /\ UNCHANGED <<record, queue, ever, letters, done, starts>>

Next ==
    \/ \E o \in Operators : \/ Claim(o) \/ SendNew(o) \/ Complete(o) \/ Delete(o)
                            \/ ReadClaim(o) \/ TakeBack(o) \/ ReadLetter(o) \/ SendOld(o)
    \/ \E w \in Workers : \/ \E k \in Bodies, copy \in BOOLEAN : Deliver(w, k, copy)
                          \/ \E is \in {"completed", "failed"} : Settle(w, is)
    \/ Crash

Safety == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The promises *)

OneBody == Cardinality(done) <= 1

OneRuns == Claims => \A w \in Workers : worker[w].at = "running" /\ record[worker[w].body].version = worker[w].seen =>
    /\ done \subseteq {worker[w].body}
    /\ \A v \in Workers : worker[v].at = "running" /\ record[worker[v].body].version = worker[v].seen =>
           worker[v].body = worker[w].body

(* Something took effect; or a copy is there of a body that may run, or whose resend may go on. *)
Runs(k) == record[k].is \in {"nothing", "failed", "claimed"}
NothingVanishes ==
    \/ done # {}
    \/ (letters # {} \/ queue[0] > 0) /\ (Runs(0) \/ (record[0].is = "resending" /\ record[record[0].to].is # "closed"))
    \/ \E k \in Bodies \ {0} : queue[k] > 0 /\ Runs(k)

(* What is done stays. *)
OnceDone == [][\A k \in Bodies : Over(k) => record'[k] = record[k]]_vars

Alike == Permutations(Workers)
=============================================================================
