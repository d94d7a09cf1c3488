------------------------------ MODULE Receiver ------------------------------
(* The record of one key: claims, renewals, settlements and commits, over a network that delays and loses, by
   workers that crash and stand still. docs/protocol.md has the rules in words, protocol/transitions.py in Python.

   Time is counted down: `left` is how many ticks a lease has left, so that time may go on for ever in finitely many
   states. A handler's effects are those of its transaction: they are applied with the record that completes it. If it
   sends messages, that record is SENDING: whoever holds it, or takes it over after its lease, sends what is left. It
   then marks it, or records what is left and ends its lease. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    a, b, \* names of workers
    Workers,
    Modes,         \* how a delivery is handled: "claims", "transaction" (without a claim), or both
    Lease,         \* ticks
    Firsts,        \* how many deliveries assume that nothing is there, as the first one does
    MostFaults,    \* crashes, answers that are lost, processes that outlast their lease
    MostFailures,  \* of the handler
    MostRenewals,
    Messages,      \* what the handler sends
    Without        \* names of rules that are left out, to see that they are needed

VARIABLES
    record,  \* what the table has
    wire,    \* requests under way, and answers that were not taken in yet
    worker,
    effects, \* how often the handler's effects were applied
    runs,    \* how often the handler succeeded
    sent,    \* how often the queue has taken each message of the handler's, up to three
    acked,
    firsts, faults, failures, renewals,
    excuses  \* the faults after which messages may be sent again: deaths, and answers of the queue that are lost

vars == <<record, wire, worker, effects, runs, sent, acked, firsts, faults, failures, renewals, excuses>>
spent == <<firsts, faults, failures, renewals, excuses>>

Nothing == [status |-> "NONE", version |-> 0, left |-> 0, owner |-> 0, todo |-> {}]

\* `todo` is what the worker has left to send, `had` what the record that it holds has.
Idle == [at |-> "idle", mode |-> "claims", seen |-> Nothing, held |-> 0, owner |-> 0, left |-> 0, todo |-> {},
         had |-> {}, wrote |-> {}, announced |-> {}, awaits |-> 0, renews |-> 0, outcome |-> "NONE"]

Sends == Messages # {}

Keeps(rule) == rule \notin Without

Success == IF Sends THEN "SENDING" ELSE "COMPLETED"
Done == {"SENDING", "COMPLETED"}

Init ==
    /\ record = Nothing
    /\ wire = {}
    /\ worker = [w \in Workers |-> Idle]
    /\ effects = 0
    /\ runs = 0
    /\ sent = [m \in Messages |-> 0]
    /\ acked = FALSE
    /\ firsts = 0 /\ faults = 0 /\ failures = 0 /\ renewals = 0 /\ excuses = 0

-----------------------------------------------------------------------------
(* Requests *)

Request(status, version, left, owner, over, todo) ==
    [puts |-> [status |-> status, version |-> version, left |-> left, owner |-> owner, todo |-> todo],
     over |-> over, answer |-> "none"]

(* A version that nothing bears or names: as good as a fresh one, and the states stay finite. *)
Named(r) == {r.puts.version, r.puts.owner, r.over}
Used == {record.version, record.owner} \union UNION {Named(r) : r \in wire} \union UNION
    {{me.seen.version, me.seen.owner, me.held, me.owner, me.awaits, me.renews}
        \union me.wrote \union me.announced : me \in {worker[w] : w \in Workers}}
Fresh == CHOOSE v \in 1..(Cardinality(Used) + 1) : v \notin Used

(* Requests that nobody waits for any more stay on the wire until they arrive, unless what they replace is gone for
   good; answers to nobody are forgotten. *)
Heard(requests, there, workers) ==
    {r \in requests :
        \/ \E w \in Workers : r.puts.version \in {workers[w].awaits, workers[w].renews}
        \/ /\ r.answer = "none"
           /\ \/ r.over = there.version \/ ~Keeps("versions")
              \/ \E other \in requests : other.answer = "none" /\ other.puts.version = r.over}

Arrive(r) ==
    /\ r.answer = "none"
    /\ LET fits == record.version = r.over \/ ~Keeps("versions")
           told == [r EXCEPT !.answer = IF fits THEN "applied" ELSE "refused"]
       IN /\ record' = IF fits THEN r.puts ELSE record
          /\ effects' = IF fits /\ r.puts.status = Success /\ record.status # "SENDING" THEN effects + 1 ELSE effects
          /\ wire' = Heard((wire \ {r}) \union {told}, record', worker)
    /\ UNCHANGED <<runs, sent, worker, acked, spent>>

Become(w, state) ==
    /\ worker' = [worker EXCEPT ![w] = state]
    /\ wire' = Heard(wire, record, worker')

Send(w, state, request) ==
    /\ worker' = [worker EXCEPT ![w] = state]
    /\ wire' = Heard(wire \union {request}, record, worker')

-----------------------------------------------------------------------------
(* A delivery, and its claim *)

Free(seen) == \/ seen.status \in {"NONE", "FAILED"}
              \/ seen.status = "SENDING" /\ seen.left = 0 /\ ~Keeps("unsent")
              \/ seen.status = "INPROGRESS" /\ (seen.left = 0 \/ ~Keeps("lease"))

Deliver(w) ==
    /\ worker[w].at = "idle" /\ ~acked
    /\ \E mode \in Modes :
        \/ /\ firsts < Firsts
           /\ firsts' = firsts + 1
           /\ Become(w, [Idle EXCEPT !.at = "deciding", !.mode = mode])
        \/ /\ firsts' = firsts
           /\ Become(w, [Idle EXCEPT !.at = "deciding", !.mode = mode, !.seen = record])
    /\ UNCHANGED <<runs, sent, record, effects, acked, faults, failures, renewals, excuses>>

(* A record with messages to send is this worker's, from its commit or its take-over on; if its lease lasts. *)
Holding(me, there) ==
    IF there.left = 0 THEN Idle
    ELSE [me EXCEPT !.at = "sending", !.seen = Nothing, !.wrote = {}, !.awaits = 0, !.renews = 0, !.announced = {},
                    !.held = there.version, !.owner = there.owner, !.left = there.left,
                    !.todo = there.todo, !.had = there.todo]

TakesOver(w, seen, version) ==
    IF ~Keeps("taking") THEN Become(w, Holding(worker[w], [seen EXCEPT !.left = Lease]))
    ELSE Send(w, [worker[w] EXCEPT !.at = "claiming", !.seen = Nothing, !.awaits = version, !.wrote = @ \union {version},
                                   !.left = IF worker[w].wrote = {} THEN Lease ELSE @],
              Request("SENDING", version, Lease, version, seen.version, seen.todo))

Decide(w) ==
    LET me == worker[w]
        seen == me.seen
        version == Fresh
    IN
    /\ me.at = "deciding"
    /\ CASE seen.status = "COMPLETED" ->
                Become(w, Idle) /\ acked' = TRUE
         [] seen.status = "SENDING" /\ seen.version \in me.wrote ->
                /\ Become(w, Holding(me, seen))
                /\ UNCHANGED <<acked>>
         [] seen.status = "SENDING" /\ seen.version \notin me.wrote /\ Keeps("unsent") ->
                /\ IF seen.left = 0 THEN TakesOver(w, seen, version) ELSE Become(w, Idle)
                /\ UNCHANGED <<acked>>
         [] seen.status # "SENDING" /\ seen.version \in me.wrote ->
                /\ Become(w, [me EXCEPT !.at = "running", !.seen = Nothing, !.wrote = {},
                                        !.held = seen.version, !.owner = seen.owner, !.left = seen.left])
                /\ UNCHANGED <<acked>>
         [] seen.version \notin me.wrote /\ Free(seen) /\ me.mode = "claims" ->
                /\ Send(w, [me EXCEPT !.at = "claiming", !.seen = Nothing, !.awaits = version,
                                      !.wrote = @ \union {version}, !.left = IF me.wrote = {} THEN Lease ELSE @],
                        Request("INPROGRESS", version, Lease, version, seen.version, {}))
                /\ acked' = acked
         [] Free(seen) /\ me.mode = "transaction" ->
                /\ Become(w, [me EXCEPT !.at = "running", !.seen = Nothing, !.held = seen.version])
                /\ UNCHANGED <<acked>>
         [] OTHER -> Become(w, Idle) /\ UNCHANGED <<acked>>
    /\ UNCHANGED <<runs, sent, record, effects, spent>>

(* The answer to what a worker waits for. *)
Answer(w, answer) == {r \in wire : r.puts.version = worker[w].awaits /\ r.answer = answer}

Claimed(w) ==
    /\ worker[w].at = "claiming"
    /\ \E r \in Answer(w, "applied") :
        Become(w, IF r.puts.status = "SENDING" THEN Holding(worker[w], r.puts)
                  ELSE [worker[w] EXCEPT !.at = "running", !.held = r.puts.version, !.owner = r.puts.owner,
                                         !.left = r.puts.left, !.wrote = {}, !.awaits = 0])
    /\ UNCHANGED <<runs, sent, record, effects, acked, spent>>

(* A refused claim, or one whose answer was lost, is settled by a read. *)
ReadClaim(w) ==
    /\ worker[w].at = "claiming"
    /\ \/ worker[w].awaits = 0
       \/ Answer(w, "refused") # {}
    /\ Become(w, [worker[w] EXCEPT !.at = "deciding", !.seen = record, !.awaits = 0])
    /\ UNCHANGED <<runs, sent, record, effects, acked, spent>>

-----------------------------------------------------------------------------
(* The handler's end *)

Outcome(status, version, owner, over) ==
    Request(status, version, IF status = "SENDING" THEN Lease ELSE 0, owner, over,
            IF status = "SENDING" THEN Messages ELSE {})

Settle(w) ==
    /\ worker[w].at = "running"
    /\ \E status \in {Success, "FAILED"} :
        /\ status = "FAILED" => failures < MostFailures
        /\ failures' = IF status = "FAILED" THEN failures + 1 ELSE failures
        /\ runs' = IF status = Success THEN runs + 1 ELSE runs
        /\ Send(w, [worker[w] EXCEPT !.at = "settling", !.outcome = status, !.awaits = Fresh, !.wrote = {Fresh}],
                Outcome(status, Fresh, worker[w].owner, worker[w].held))
    /\ UNCHANGED <<record, effects, sent, acked, firsts, faults, renewals, excuses>>

End(w, status) == Become(w, Idle) /\ acked' = (acked \/ status = "COMPLETED")

(* Its outcome is there, and has messages to send. *)
MaySend(w, there) ==
    /\ Become(w, Holding(worker[w], there))
    /\ acked' = acked

Settled(w) ==
    /\ worker[w].at = "settling"
    /\ \E r \in Answer(w, "applied") :
        IF worker[w].outcome = "SENDING" THEN MaySend(w, r.puts) ELSE End(w, worker[w].outcome)
    /\ UNCHANGED <<runs, sent, record, effects, spent>>

(* A run without a claim that took its key for free runs once more, over what its first commit found, where a delivery
   that reads it would run. Not where a request of it may still be under way. *)
MayRunAgain(me) ==
    /\ me.mode = "transaction" /\ me.held = 0 /\ me.outcome = Success
    /\ me.awaits # 0 /\ Cardinality(me.wrote) = 1
    /\ record.status # "NONE" /\ record.version \notin me.wrote /\ Free(record)

ReadSettlement(w) ==
    LET me == worker[w]
        ours == {me.held} \union me.announced
    IN
    /\ me.at = "settling"
    /\ \/ me.awaits = 0
       \/ Answer(w, "refused") # {}
    /\ IF ~Keeps("reading") THEN End(w, me.outcome)
       ELSE IF MayRunAgain(me)
       THEN /\ Become(w, [me EXCEPT !.at = "running", !.held = record.version, !.wrote = {}, !.awaits = 0,
                                    !.outcome = "NONE"])
            /\ acked' = acked
       ELSE IF record.status = "SENDING" /\ record.version \in me.wrote THEN MaySend(w, record)
       ELSE IF record.version \in me.wrote \/ record.version \notin ours THEN End(w, record.status)
       ELSE /\ Send(w, [me EXCEPT !.awaits = Fresh, !.wrote = @ \union {Fresh}, !.held = record.version],
                    Outcome(me.outcome, Fresh, me.owner, record.version))
            /\ acked' = acked
    /\ UNCHANGED <<runs, sent, record, effects, spent>>

-----------------------------------------------------------------------------
(* What is to be sent. A message that was sent may be sent again, always under its key, which the record has. *)

Taken(m) == sent' = [sent EXCEPT ![m] = IF @ < 3 THEN @ + 1 ELSE @]

SendOut(w) ==
    /\ worker[w].at = "sending" /\ Keeps("sending")
    /\ \E m \in worker[w].todo :
        /\ Become(w, [worker[w] EXCEPT !.todo = @ \ {m}])
        /\ Taken(m)
    /\ UNCHANGED <<runs, record, effects, acked, spent>>

(* The queue refuses it, time is over, or an answer is lost: the delivery stops with something left. *)
NotSent(w) ==
    /\ worker[w].at = "sending" /\ faults < MostFaults
    /\ faults' = faults + 1
    /\ \E m \in worker[w].todo :
        \/ sent' = sent /\ excuses' = excuses
        \/ Taken(m) /\ excuses' = excuses + 1
    /\ Become(w, [worker[w] EXCEPT !.at = "leaving"])
    /\ UNCHANGED <<runs, record, effects, acked, firsts, failures, renewals>>

(* What is left is recorded, and the lease ends with it. *)
LeftOver(me, version, over) ==
    Request("SENDING", version, 0, me.owner, over, IF Keeps("keeping") THEN me.todo ELSE me.had)
Marking(me, version, over) == Request("COMPLETED", version, 0, me.owner, over, {})

Stop(w) ==
    /\ worker[w].at = "leaving"
    /\ Send(w, [worker[w] EXCEPT !.at = "stopping", !.awaits = Fresh, !.wrote = {Fresh}],
            LeftOver(worker[w], Fresh, worker[w].held))
    /\ UNCHANGED <<runs, sent, record, effects, acked, spent>>

Mark(w) ==
    /\ worker[w].at = "sending" /\ (worker[w].todo = {} \/ ~Keeps("sending"))
    /\ Send(w, [worker[w] EXCEPT !.at = "marking", !.awaits = Fresh, !.wrote = {Fresh}],
            Marking(worker[w], Fresh, worker[w].held))
    /\ UNCHANGED <<runs, sent, record, effects, acked, spent>>

Marked(w) ==
    /\ worker[w].at \in {"marking", "stopping"}
    /\ Answer(w, "applied") # {}
    /\ End(w, IF worker[w].at = "marking" THEN "COMPLETED" ELSE "SENDING")
    /\ UNCHANGED <<runs, sent, record, effects, spent>>

(* It goes over a renewal of its own. A mark that another has made is as good; what another has taken over is his. *)
ReadMark(w) ==
    LET me == worker[w] IN
    /\ me.at \in {"marking", "stopping"}
    /\ \/ me.awaits = 0
       \/ Answer(w, "refused") # {}
    /\ IF record.version \notin {me.held} \union me.announced THEN End(w, record.status)
       ELSE /\ Send(w, [me EXCEPT !.awaits = Fresh, !.wrote = @ \union {Fresh}, !.held = record.version],
                    IF me.at = "marking" THEN Marking(me, Fresh, record.version) ELSE LeftOver(me, Fresh, record.version))
            /\ acked' = acked
    /\ UNCHANGED <<runs, sent, record, effects, spent>>

-----------------------------------------------------------------------------
(* Renewals *)

Renew(w) ==
    /\ worker[w].renews = 0
    /\ worker[w].at = "sending" \/ (worker[w].at = "running" /\ worker[w].mode = "claims")
    /\ renewals < MostRenewals
    /\ renewals' = renewals + 1
    /\ Send(w, [worker[w] EXCEPT !.renews = Fresh,
                                 !.announced = IF Keeps("announcing") THEN @ \union {Fresh} ELSE @],
            Request(IF worker[w].at = "sending" THEN "SENDING" ELSE "INPROGRESS", Fresh, Lease, worker[w].owner,
                    worker[w].held, worker[w].had))
    /\ UNCHANGED <<runs, sent, record, effects, acked, firsts, faults, failures, excuses>>

Renewal(w, answer) == {r \in wire : worker[w].renews # 0 /\ r.puts.version = worker[w].renews /\ r.answer = answer}

Renewed(w) ==
    /\ \E r \in Renewal(w, "applied") :
        Become(w, [worker[w] EXCEPT !.held = r.puts.version, !.left = r.puts.left, !.renews = 0,
                                    !.announced = @ \union {r.puts.version}])
    /\ UNCHANGED <<runs, sent, record, effects, acked, spent>>

(* A renewal that was refused is looked into. What its own worker has settled, or renewed, is no loss. *)
ReadRenewal(w) ==
    LET me == worker[w] IN
    /\ Renewal(w, "refused") # {}
    /\ Become(w, IF record.version \in me.announced \union {me.held}
                 THEN [me EXCEPT !.renews = 0, !.held = record.version, !.left = record.left]
                 ELSE IF record.version \in me.wrote THEN [me EXCEPT !.renews = 0] ELSE Idle)
    /\ UNCHANGED <<runs, sent, record, effects, acked, spent>>

-----------------------------------------------------------------------------
(* Faults, and time *)

Crash(w) ==
    /\ worker[w].at # "idle" /\ faults < MostFaults
    /\ faults' = faults + 1
    /\ excuses' = excuses + 1
    /\ Become(w, Idle)
    /\ UNCHANGED <<runs, sent, record, effects, acked, firsts, failures, renewals>>

(* An answer is lost or late: the request may still arrive, or has. *)
Lose(w) ==
    /\ faults < MostFaults
    /\ faults' = faults + 1
    /\ \/ worker[w].awaits # 0 /\ Become(w, [worker[w] EXCEPT !.awaits = 0])
       \/ worker[w].renews # 0 /\ Become(w, [worker[w] EXCEPT !.renews = 0])
    /\ UNCHANGED <<runs, sent, record, effects, acked, firsts, failures, renewals, excuses>>

Less(n) == IF n = 0 THEN 0 ELSE n - 1

(* A process is dead when its lease is over, which is armed before a claim is sent. *)
Outlasts(w) == worker[w].left = 1

Tick ==
    LET late == {w \in Workers : Outlasts(w)}
        dead == IF Keeps("death") THEN late ELSE {}
        older(r) == [r EXCEPT !.left = Less(@)]
        after == [w \in Workers |-> IF w \in dead THEN Idle
                                    ELSE [worker[w] EXCEPT !.left = Less(@), !.seen = older(@)]]
    IN
    /\ \/ record.left > 0
       \/ \E w \in Workers : worker[w].left > 0 \/ worker[w].seen.left > 0
       \/ \E r \in wire : r.puts.left > 0
    /\ late # {} => faults < MostFaults
    /\ faults' = IF late # {} THEN faults + 1 ELSE faults
    /\ excuses' = IF late # {} THEN excuses + 1 ELSE excuses
    /\ record' = older(record)
    /\ worker' = after
    /\ wire' = Heard({[r EXCEPT !.puts = older(@)] : r \in wire}, record, after)
    /\ UNCHANGED <<runs, sent, effects, acked, firsts, failures, renewals>>

-----------------------------------------------------------------------------

Progress(w) == Deliver(w) \/ Decide(w) \/ Claimed(w) \/ ReadClaim(w) \/ Settle(w) \/ Settled(w) \/ ReadSettlement(w)
               \/ Renewed(w) \/ ReadRenewal(w) \/ SendOut(w) \/ Stop(w) \/ Mark(w) \/ Marked(w) \/ ReadMark(w)

Next == \/ \E w \in Workers : Progress(w) \/ Renew(w) \/ Crash(w) \/ Lose(w) \/ NotSent(w)
        \/ \E r \in wire : Arrive(r)
        \/ Tick

Fairness == /\ \A w \in Workers : WF_vars(Progress(w))
            /\ WF_vars(\E r \in wire : Arrive(r))
            /\ WF_vars(Tick)

Safety == Init /\ [][Next]_vars
Spec == Init /\ [][Next]_vars /\ Fairness

-----------------------------------------------------------------------------
(* The promises *)

NothingLost == acked => record.status = "COMPLETED"

(* What is acknowledged was sent, and what is sent was committed. *)
SentIfCommitted == /\ acked => \A m \in Messages : sent[m] > 0
                   /\ (\E m \in Messages : sent[m] > 0) => effects > 0

(* One worker sends at a time, and what the record no longer has was sent. *)
OneSender == \A v, w \in Workers : worker[v].at = "sending" /\ worker[w].at = "sending" => v = w
NoneForgotten == record.status = "SENDING" => \A m \in Messages \ record.todo : sent[m] > 0
NoneAgain == \A m \in Messages : sent[m] <= 1 + excuses

Running(w) == worker[w].at = "running"
OneAtATime == Modes = {"claims"} => \A v, w \in Workers : Running(v) /\ Running(w) => v = w

OnceDone == [][\A w \in Workers : record.status \in Done /\ ~Running(w) =>
                  (Running(w)' => worker[w].mode = "transaction")]_vars

(* What is done stays, and a live claim is replaced by its owner alone. *)
Fenced == [][/\ record.status = "COMPLETED" => record' = record
             /\ record.status = "SENDING" => record'.status \in Done /\ record'.todo \subseteq record.todo
             /\ record.status \in {"INPROGRESS", "SENDING"} /\ record.left > 0 /\ record'.version # record.version =>
                    record'.owner = record.owner]_vars

(* Without a fault no handler runs again. *)
NoRunInVain == Modes = {"claims"} => runs <= 1 + faults

ExactlyOnce == effects = IF record.status \in Done THEN 1 ELSE 0

OrphansRecover == <>acked

Alike == Permutations(Workers)
=============================================================================
