------------------------------- MODULE Resend -------------------------------
(* A dead letter that is resent with another body, while others redrive its copies, or resend them or another letter,
   beside a consumer with claims or without. docs/protocol.md has the rules in words, protocol/resend.py in Python. What
   Receiver.tla shows of one record is taken for granted: a write names the version that it replaces, whoever crashes is
   dead when its lease is over, and a lost answer is settled by a read.

   Body n has key n. A request that arrives late is an operator who was slow and then crashed. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    alice, bob, carol, c, d, \* names of operators and workers
    Workers,
    Act,         \* what each operator does: [verb, old, new, letter]; the letter has the body `old`
    Claims,      \* whether the consumer claims
    MostStarts,  \* deliveries
    MostCrashes,
    Without      \* rules that are left out, to see that they are needed

VARIABLES
    record,   \* of each key
    queue,    \* how many copies of each body there are
    ever,     \* the bodies that were ever queued: a standard queue may deliver each once more
    letters,  \* the dead letters: [letter, body]
    operator, worker,
    done,     \* the bodies that took effect
    starts, crashes

vars == <<record, queue, ever, letters, operator, worker, done, starts, crashes>>
Operators == DOMAIN Act
Dead == {Act[o].old : o \in Operators}
Bodies == Dead \union {Act[o].new : o \in Operators}
Keeps(rule) == rule \notin Without

Idle == [at |-> "idle", body |-> 0, seen |-> 0, copy |-> FALSE]

Init ==
    /\ record = [k \in Bodies |-> IF k \in Dead THEN [is |-> "failed", to |-> k, version |-> 1]
                                 ELSE [is |-> "nothing", to |-> k, version |-> 0]]
    /\ queue = [k \in Bodies |-> 0]
    /\ ever = Dead
    /\ letters = {[letter |-> Act[o].letter, body |-> Act[o].old] : o \in Operators}
    /\ operator = [o \in Operators |-> [at |-> "reading", seen |-> 0, to |-> 0]]
    /\ worker = [w \in Workers |-> Idle]
    /\ done = {}
    /\ starts = 0 /\ crashes = 0

-----------------------------------------------------------------------------
(* Records. One that is resending has the new body in its outbox, and `to` is its key. *)

Holds(w, k) == worker[w].at # "idle" /\ worker[w].body = k /\ worker[w].seen = record[k].version
Held(k) == \E w \in Workers : Holds(w, k)
Free(k) == record[k].is \in {"nothing", "failed"} \/ (record[k].is = "claimed" /\ ~Held(k))
Over(k) == record[k].is \in {"completed", "resent"}
Open(k) == (~Over(k) /\ record[k].is # "resending") \/ ~Keeps("open")

Write(k, is, to) == [record EXCEPT ![k] = [is |-> is, to |-> to, version |-> @.version + 1]]
Sent(k) == [queue EXCEPT ![k] = @ + 1]

-----------------------------------------------------------------------------
(* Operators *)

Old(o) == Act[o].old
Mine(o) == [letter |-> Act[o].letter, body |-> Old(o)]
Go(o, at) == operator' = [operator EXCEPT ![o].at = at]
Stays == UNCHANGED <<worker, done, starts, crashes>>
Finish(o, version, to) ==
    LET first == IF Keeps("order") THEN "sending" ELSE "marking"
    IN operator' = [operator EXCEPT ![o] = [at |-> first, seen |-> version, to |-> to]]

(* What has begun is finished, by whoever comes, unless a worker is at it. *)
Resume(o) ==
    /\ operator[o].at = "reading" /\ Mine(o) \in letters /\ record[Old(o)].is = "resending"
    /\ IF Held(Old(o)) \/ (Act[o].verb = "resend" /\ record[Old(o)].to # Act[o].new) THEN Go(o, "over")
       ELSE Finish(o, record[Old(o)].version, record[Old(o)].to)
    /\ UNCHANGED <<record, queue, ever, letters>> /\ Stays

(* The beginning reads, decides and writes over what it has read, in one transaction with the check of the new key. *)
Begin(o) ==
    LET new == Act[o].new IN
    /\ Act[o].verb = "resend" /\ operator[o].at = "reading" /\ Mine(o) \in letters
    /\ record[Old(o)].is # "resending"
    /\ IF ~Keeps("record") THEN Finish(o, record[Old(o)].version, new) /\ UNCHANGED record
       ELSE IF Free(Old(o)) /\ Open(new) /\ (new # Old(o) \/ ~Keeps("another"))
       THEN record' = Write(Old(o), "resending", new) /\ Finish(o, record'[Old(o)].version, new)
       ELSE Go(o, "over") /\ UNCHANGED record
    /\ UNCHANGED <<queue, ever, letters>> /\ Stays

SendNew(o) ==
    /\ operator[o].at = "sending"
    /\ queue' = Sent(operator[o].to)
    /\ ever' = ever \union {operator[o].to}
    /\ Go(o, IF Keeps("order") THEN "marking" ELSE "deleting")
    /\ UNCHANGED <<record, letters>> /\ Stays

(* Its mark refused, it looks again. *)
Mark(o) ==
    LET k == Old(o)
        to == operator[o].to
        then == IF Keeps("order") THEN "deleting" ELSE "sending"
    IN
    /\ operator[o].at = "marking"
    /\ IF record[k].version = operator[o].seen
       THEN Go(o, then) /\ record' = Write(k, "resent", to)
       ELSE /\ UNCHANGED record
            /\ Go(o, IF record[k].is = "resent" /\ record[k].to = to THEN then ELSE "over")
    /\ UNCHANGED <<queue, ever, letters>> /\ Stays

Delete(o) ==
    /\ operator[o].at = "deleting"
    /\ letters' = letters \ {Mine(o)}
    /\ Go(o, "over")
    /\ UNCHANGED <<record, queue, ever>> /\ Stays

(* A redrive drops what is done or goes on elsewhere, and sends all else. *)
ReadLetter(o) ==
    /\ Act[o].verb = "redrive" /\ operator[o].at = "reading" /\ Mine(o) \in letters
    /\ record[Old(o)].is # "resending"
    /\ Go(o, IF Over(Old(o)) THEN "deleting" ELSE "sending old")
    /\ UNCHANGED <<record, queue, ever, letters>> /\ Stays

SendOld(o) ==
    /\ operator[o].at = "sending old"
    /\ queue' = Sent(Old(o))
    /\ Go(o, "deleting")
    /\ UNCHANGED <<record, ever, letters>> /\ Stays

-----------------------------------------------------------------------------
(* The consumer *)

Become(w, me) == worker' = [worker EXCEPT ![w] = me]
Same == UNCHANGED <<letters, operator, crashes>>
Taken(me) == IF me.copy THEN [queue EXCEPT ![me.body] = @ - 1] ELSE queue

(* A copy of the queue, or a late duplicate, which leaves the copies alone. Without claims a first delivery runs unread;
   what is there is looked at by its commit. What it has read that is resending is taken over, to send what is left. *)
Deliver(w, k, copy) ==
    LET me(at, version) == [at |-> at, body |-> k, seen |-> version, copy |-> copy] IN
    /\ worker[w].at = "idle" /\ starts < MostStarts
    /\ IF copy THEN queue[k] > 0 /\ \A v \in Workers : ~(worker[v].copy /\ worker[v].body = k) ELSE k \in ever
    /\ starts' = starts + 1
    /\ IF Over(k)
       THEN UNCHANGED <<worker, record>> /\ queue' = IF copy THEN [queue EXCEPT ![k] = @ - 1] ELSE queue
       ELSE /\ UNCHANGED queue
            /\ \/ /\ record[k].is = "resending" /\ ~Held(k)
                  /\ record' = Write(k, "resending", record[k].to)
                  /\ Become(w, me("sending", record'[k].version))
               \/ /\ Claims /\ Free(k)
                  /\ record' = Write(k, "claimed", k)
                  /\ Become(w, me("running", record'[k].version))
               \/ Claims /\ Held(k) /\ UNCHANGED <<record, worker>>
               \/ /\ ~Claims /\ UNCHANGED record
                  /\ \E seen \in {0, record[k].version} :
                         /\ seen = record[k].version => record[k].is # "resending"
                         /\ Become(w, me("running", seen))
    /\ UNCHANGED <<done, ever>> /\ Same

(* Over exactly what was claimed, or read. *)
Settle(w, is) ==
    LET me == worker[w]
        fits == record[me.body].version = me.seen /\ (Claims \/ record[me.body].is \in {"nothing", "failed"})
    IN
    /\ me.at = "running"
    /\ record' = IF fits THEN Write(me.body, is, me.body) ELSE record
    /\ done' = IF fits /\ is = "completed" THEN done \union {me.body} ELSE done
    /\ queue' = IF (fits /\ is = "completed") \/ Over(me.body) THEN Taken(me) ELSE queue
    /\ Become(w, Idle)
    /\ UNCHANGED <<starts, ever>> /\ Same

WorkerSends(w) ==
    LET me == worker[w]
        to == record[me.body].to
    IN
    /\ me.at = "sending"
    /\ queue' = IF Holds(w, me.body) THEN Sent(to) ELSE queue
    /\ ever' = IF Holds(w, me.body) THEN ever \union {to} ELSE ever
    /\ Become(w, [me EXCEPT !.at = "marking"])
    /\ UNCHANGED <<record, done, starts>> /\ Same

WorkerMarks(w) ==
    LET me == worker[w]
        holds == Holds(w, me.body)
    IN
    /\ me.at = "marking"
    /\ record' = IF holds THEN Write(me.body, "resent", record[me.body].to) ELSE record
    /\ queue' = IF holds \/ Over(me.body) THEN Taken(me) ELSE queue
    /\ Become(w, Idle)
    /\ UNCHANGED <<done, starts, ever>> /\ Same

-----------------------------------------------------------------------------

Crash ==
    /\ crashes < MostCrashes
    /\ crashes' = crashes + 1
    /\ \/ \E o \in Operators : operator[o].at \notin {"reading", "over"} /\ Go(o, "over") /\ UNCHANGED worker
       \/ \E w \in Workers : worker[w].at # "idle" /\ Become(w, Idle) /\ UNCHANGED operator
    /\ UNCHANGED <<record, queue, ever, letters, done, starts>>

Next ==
    \/ \E o \in Operators : \/ Resume(o) \/ Begin(o) \/ SendNew(o) \/ Mark(o) \/ Delete(o)
                            \/ ReadLetter(o) \/ SendOld(o)
    \/ \E w \in Workers : \/ \E k \in Bodies, copy \in BOOLEAN : Deliver(w, k, copy)
                          \/ \E is \in {"completed", "failed"} : Settle(w, is)
                          \/ WorkerSends(w) \/ WorkerMarks(w)
    \/ Crash

Safety == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The promises *)

OneBody == Cardinality(done) <= Cardinality(Dead)

Runs(w) == worker[w].at = "running" /\ Holds(w, worker[w].body)
OneRuns == (Claims /\ Cardinality(Dead) = 1) => \A w \in Workers : Runs(w) =>
    /\ done \subseteq {worker[w].body}
    /\ \A v \in Workers : Runs(v) => worker[v].body = worker[w].body

(* Each letter's message took effect, under its own key or the one where it goes on; or a copy or a letter of that is
   there, and it may run; or a letter or a copy will send it. *)
After(k) == IF record[k].is \in {"resending", "resent"} THEN record[k].to ELSE k
There(k) == queue[k] > 0 \/ \E each \in letters : each.body = k
Last(k) == After(After(After(k)))
Vanishes(k) ==
    /\ Last(k) \notin done
    /\ \/ record[Last(k)].is \notin {"nothing", "failed", "claimed"}
       \/ ~There(Last(k)) /\ \A j \in {k, After(k), After(After(k))} : ~(record[j].is = "resending" /\ There(j))
NothingVanishes == \A k \in Dead : ~Vanishes(k)

(* What is done stays. *)
OnceDone == [][\A k \in Bodies : Over(k) => record'[k] = record[k]]_vars

Alike == Permutations(Workers)
=============================================================================
