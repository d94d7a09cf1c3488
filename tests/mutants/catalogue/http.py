"""Bugs of HTTP requests and their answers."""

from __future__ import annotations

from tests.mutants.change import always, argument, instead_of, leave_out, never, replace, returns
from tests.mutants.mutant import Mutant, unit

HTTP = unit("http")

MUTANTS = {
    "the timer that ends the process is armed after the claim": Mutant(
        "http.endpoint:_Invocation.answer",
        instead_of(
            "with $SETTINGS.lifetime($DEADLINE): return self._called($CALL, $KEY, $FUNCTION, $TRANSACTION)",
            "call = $CALL; begun = call.claim($SETTINGS.wait_seconds); call.claim = lambda wait_seconds: begun\n"
            "with $SETTINGS.lifetime($DEADLINE): return self._called(call, $KEY, $FUNCTION, $TRANSACTION)",
        ),
        promise=2,
        where=unit("process_end"),
    ),
    "a request without a key runs unprotected": Mutant(
        "http.endpoint:_Invocation.answer", always("not $SETTINGS.required"), promise=3, where=HTTP
    ),
    "a failure is an answer although it may be tried again": Mutant(
        "http.endpoint:http_endpoint", argument("failures_are_answers", "True"), where=HTTP
    ),
    "tenants share their keys": Mutant(
        "http.endpoint:_Settings.key_of", replace("quote($SCOPE, ...)", "$SCOPE"), where=HTTP
    ),
    "the loser's answer is given": Mutant(
        "http.endpoint:_Invocation._told",
        replace("self._replayed($RECORD)", "$0 if handled is None else _returned(handled)"),
        promise=4,
        where=HTTP,
    ),
    "an answer is given whose transaction was not committed": Mutant(
        "http.endpoint:_Invocation._told", never("self._keeps"), promise=3, where=HTTP
    ),
    "an exception's text is answered": Mutant(
        "http.endpoint:_Invocation._raised",
        replace("problem.generic_failure()", "problem.bad_request('failed', str(error))"),
        where=HTTP,
    ),
    "a failure that was not recorded is the last word": Mutant(
        "http.endpoint:_Invocation._raised", always("recorded"), promise=1, where=HTTP
    ),
    "an answer that is not final is kept": Mutant(
        "http.endpoint:_Invocation._keeps", returns("True"), promise=1, where=HTTP
    ),
    "a replay is not marked as one": Mutant(
        "http.endpoint:_Invocation._replay_marked", leave_out("REPLAYED"), where=HTTP
    ),
    "an answer that was not kept is an empty one": Mutant(
        "http.endpoint:_Invocation._replayed",
        replace("self._ours(problem.gone())", "self._replay_marked(None)"),
        where=HTTP,
    ),
    "a winner that has failed is waited for": Mutant("http.problem:of", always("Status.INPROGRESS"), where=HTTP),
    # What counts of a request.
    "two keys that were joined are one": Mutant("http.request:header.key", never("','"), promise=3, where=HTTP),
    "a header is found in one case only": Mutant("http.request:_headers", replace("str.lower", "str"), where=HTTP),
    "a parameter hides behind another spelling of its name": Mutant(
        "http.request:_every_value", replace("frozenset($FOUND)", "$FOUND"), promise=3, where=HTTP
    ),
    "a request of nobody runs unprotected where no key is required": Mutant(
        "http.request:scope_of", replace("MissingKey", "ZeroDivisionError"), promise=3, where=HTTP
    ),
    "the path does not count": Mutant("http.request:Request.fingerprint", leave_out("self.path"), where=HTTP),
    "the query string does not count": Mutant(
        "http.request:Request.fingerprint", leave_out("self.query"), promise=3, where=HTTP + unit("workflow")
    ),
    "the order of a query string's names counts": Mutant(
        "http.request:_sorted", replace("sorted($PAIRS, ...)", "$PAIRS"), promise=3, where=HTTP
    ),
    "the order of one name's values does not count": Mutant(
        "http.request:_sorted", leave_out("itemgetter(0)"), promise=3, where=HTTP
    ),
    "a load balancer's parameters count as they were encoded": Mutant(
        "http.request:request_of", leave_out("_decoded"), promise=3, where=HTTP
    ),
}
