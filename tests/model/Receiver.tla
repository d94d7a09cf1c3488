------------------------------ MODULE Receiver ------------------------------
(* The record of one key: claims, renewals, settlements and commits, over a network that delays and loses, by
   workers that crash and stand still. docs/protocol.md has the rules in words, protocol/transitions.py in Python.

   Time is counted down: `left` is how many ticks a lease has left, so that time may go on for ever in finitely many
   states. A handler's effects are those of its transaction: they are applied with the record that completes it. If it
   sends a message, that record is SENDING: whoever holds it, or finds it after its lease, sends and then marks it. *)
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
    Sends,         \* whether the handler sends a message
    Without        \* names of rules that are left out, to see that they are needed

VARIABLES
    record,  \* what the table has
    wire,    \* requests under way, and answers that were not taken in yet
    worker,
    effects, \* how often the handler's effects were applied
    runs,    \* how often the handler succeeded
    sent,    \* whether the queue has taken the handler's message
    acked,
    firsts, faults, failures, renewals

vars == <<record, wire, worker, effects, runs, sent, acked, firsts, faults, failures, renewals>>
spent == <<firsts, faults, failures, renewals>>

Nothing == [status |-> "NONE", version |-> 0, left |-> 0, owner |-> 0]

Idle == [at |-> "idle", mode |-> "claims", seen |-> Nothing, held |-> 0, owner |-> 0, left |-> 0,
         wrote |-> {}, announced |-> {}, awaits |-> 0, renews |-> 0, outcome |-> "NONE"]

Keeps(rule) == rule \notin Without

Success == IF Sends THEN "SENDING" ELSE "COMPLETED"
Done == {"SENDING", "COMPLETED"}

Init ==
    /\ record = Nothing
    /\ wire = {}
    /\ worker = [w \in Workers |-> Idle]
    /\ effects = 0
    /\ runs = 0
    /\ sent = FALSE
    /\ acked = FALSE
    /\ firsts = 0 /\ faults = 0 /\ failures = 0 /\ renewals = 0

-----------------------------------------------------------------------------
(* Requests *)

Request(status, version, left, owner, over) ==
    [puts |-> [status |-> status, version |-> version, left |-> left, owner |-> owner],
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
          /\ effects' = IF fits /\ r.puts.status = Success THEN effects + 1 ELSE effects
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
    /\ UNCHANGED <<runs, sent, record, effects, acked, faults, failures, renewals>>

Decide(w) ==
    LET me == worker[w]
        seen == me.seen
        version == Fresh
    IN
    /\ me.at = "deciding"
    /\ CASE seen.status = "COMPLETED" ->
                Become(w, Idle) /\ acked' = TRUE
         [] seen.status = "SENDING" /\ Keeps("unsent") ->
                /\ Become(w, IF seen.left = 0 THEN [me EXCEPT !.at = "sending", !.seen = Nothing, !.wrote = {},
                                                             !.held = seen.version, !.owner = seen.owner]
                             ELSE Idle)
                /\ UNCHANGED <<acked>>
         [] seen.version \in me.wrote ->
                /\ Become(w, [me EXCEPT !.at = "running", !.seen = Nothing, !.wrote = {},
                                        !.held = seen.version, !.owner = seen.owner, !.left = seen.left])
                /\ UNCHANGED <<acked>>
         [] seen.version \notin me.wrote /\ Free(seen) /\ me.mode = "claims" ->
                /\ Send(w, [me EXCEPT !.at = "claiming", !.seen = Nothing, !.awaits = version,
                                      !.wrote = @ \union {version}, !.left = IF me.wrote = {} THEN Lease ELSE @],
                        Request("INPROGRESS", version, Lease, version, seen.version))
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
        Become(w, [worker[w] EXCEPT !.at = "running", !.held = r.puts.version, !.owner = r.puts.owner,
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

Settle(w) ==
    /\ worker[w].at = "running"
    /\ \E status \in {Success, "FAILED"} :
        /\ status = "FAILED" => failures < MostFailures
        /\ failures' = IF status = "FAILED" THEN failures + 1 ELSE failures
        /\ runs' = IF status = Success THEN runs + 1 ELSE runs
        /\ Send(w, [worker[w] EXCEPT !.at = "settling", !.outcome = status, !.awaits = Fresh, !.wrote = {Fresh}],
                Request(status, Fresh, IF status = "SENDING" THEN Lease ELSE 0, worker[w].owner, worker[w].held))
    /\ UNCHANGED <<record, effects, sent, acked, firsts, faults, renewals>>

End(w, status) == Become(w, Idle) /\ acked' = (acked \/ status = "COMPLETED")

(* Its outcome is there, and has a message to send. *)
MaySend(w, version) ==
    /\ Become(w, [worker[w] EXCEPT !.at = "sending", !.held = version, !.wrote = {}, !.awaits = 0])
    /\ acked' = acked

Settled(w) ==
    /\ worker[w].at = "settling"
    /\ Answer(w, "applied") # {}
    /\ IF worker[w].outcome = "SENDING"
       THEN MaySend(w, worker[w].awaits)
       ELSE End(w, worker[w].outcome)
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
       ELSE IF record.status = "SENDING" /\ record.version \in me.wrote THEN MaySend(w, record.version)
       ELSE IF record.version \in me.wrote \/ record.version \notin ours THEN End(w, record.status)
       ELSE /\ Send(w, [me EXCEPT !.awaits = Fresh, !.wrote = @ \union {Fresh}, !.held = record.version],
                    Request(me.outcome, Fresh, IF me.outcome = "SENDING" THEN Lease ELSE 0, me.owner, record.version))
            /\ acked' = acked
    /\ UNCHANGED <<runs, sent, record, effects, spent>>

-----------------------------------------------------------------------------
(* What is to be sent. A message that was sent may be sent again, always under its key, which the record has. *)

SendOut(w) ==
    /\ worker[w].at = "sending" /\ Keeps("sending")
    /\ Become(w, [worker[w] EXCEPT !.at = "sent"])
    /\ sent' = TRUE
    /\ UNCHANGED <<runs, record, effects, acked, spent>>

(* The queue refuses it, or its answer is lost, and the message that brought all this about is delivered again. *)
NotSent(w) ==
    /\ worker[w].at = "sending" /\ faults < MostFaults
    /\ faults' = faults + 1
    /\ \E taken \in BOOLEAN : sent' = (sent \/ taken)
    /\ Become(w, Idle)
    /\ UNCHANGED <<runs, record, effects, acked, firsts, failures, renewals>>

Mark(w) ==
    /\ worker[w].at = IF Keeps("sending") THEN "sent" ELSE "sending"
    /\ Send(w, [worker[w] EXCEPT !.at = "marking", !.awaits = Fresh, !.wrote = {Fresh}],
            Request("COMPLETED", Fresh, 0, worker[w].owner, worker[w].held))
    /\ UNCHANGED <<runs, sent, record, effects, acked, spent>>

Marked(w) ==
    /\ worker[w].at = "marking"
    /\ Answer(w, "applied") # {}
    /\ End(w, "COMPLETED")
    /\ UNCHANGED <<runs, sent, record, effects, spent>>

(* A mark that another has made is as good; one that is not there is made after the next delivery. *)
ReadMark(w) ==
    /\ worker[w].at = "marking"
    /\ \/ worker[w].awaits = 0
       \/ Answer(w, "refused") # {}
    /\ End(w, record.status)
    /\ UNCHANGED <<runs, sent, record, effects, spent>>

-----------------------------------------------------------------------------
(* Renewals *)

Renew(w) ==
    /\ worker[w].at = "running" /\ worker[w].mode = "claims" /\ worker[w].renews = 0
    /\ renewals < MostRenewals
    /\ renewals' = renewals + 1
    /\ Send(w, [worker[w] EXCEPT !.renews = Fresh,
                                 !.announced = IF Keeps("announcing") THEN @ \union {Fresh} ELSE @],
            Request("INPROGRESS", Fresh, Lease, worker[w].owner, worker[w].held))
    /\ UNCHANGED <<runs, sent, record, effects, acked, firsts, faults, failures>>

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
    /\ Become(w, Idle)
    /\ UNCHANGED <<runs, sent, record, effects, acked, firsts, failures, renewals>>

(* An answer is lost or late: the request may still arrive, or has. *)
Lose(w) ==
    /\ faults < MostFaults
    /\ faults' = faults + 1
    /\ \/ worker[w].awaits # 0 /\ Become(w, [worker[w] EXCEPT !.awaits = 0])
       \/ worker[w].renews # 0 /\ Become(w, [worker[w] EXCEPT !.renews = 0])
    /\ UNCHANGED <<runs, sent, record, effects, acked, firsts, failures, renewals>>

Less(n) == IF n = 0 THEN 0 ELSE n - 1

(* A process is dead when its lease is over, which is armed before a claim is sent. *)
Outlasts(w) == worker[w].mode = "claims" /\ worker[w].left = 1

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
    /\ record' = older(record)
    /\ worker' = after
    /\ wire' = Heard({[r EXCEPT !.puts = older(@)] : r \in wire}, record, after)
    /\ UNCHANGED <<runs, sent, effects, acked, firsts, failures, renewals>>

-----------------------------------------------------------------------------

Progress(w) == Deliver(w) \/ Decide(w) \/ Claimed(w) \/ ReadClaim(w) \/ Settle(w) \/ Settled(w) \/ ReadSettlement(w)
               \/ Renewed(w) \/ ReadRenewal(w) \/ SendOut(w) \/ Mark(w) \/ Marked(w) \/ ReadMark(w)

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
SentIfCommitted == /\ acked /\ Sends => sent
                   /\ sent => effects > 0

Running(w) == worker[w].at = "running"
OneAtATime == Modes = {"claims"} => \A v, w \in Workers : Running(v) /\ Running(w) => v = w

OnceDone == [][\A w \in Workers : record.status \in Done /\ ~Running(w) =>
                  (Running(w)' => worker[w].mode = "transaction")]_vars

(* What is done stays, and a live claim is replaced by its owner alone. *)
Fenced == [][/\ record.status = "COMPLETED" => record' = record
             /\ record.status = "SENDING" => record'.status \in Done
             /\ record.status = "INPROGRESS" /\ record.left > 0 /\ record'.version # record.version =>
                    record'.owner = record.owner]_vars

(* Without a fault no handler runs again. *)
NoRunInVain == Modes = {"claims"} => runs <= 1 + faults

ExactlyOnce == effects = IF record.status \in Done THEN 1 ELSE 0

OrphansRecover == <>acked

Alike == Permutations(Workers)
=============================================================================
