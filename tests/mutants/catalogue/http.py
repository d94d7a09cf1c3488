"""Bugs of HTTP requests and their answers."""

from __future__ import annotations

from tests.mutants.change import always, argument, both, instead_of, leave_out, never, replace, returns
from tests.mutants.mutant import CALLED, Mutant, unit

HTTP = unit("http/endpoint")

MUTANTS = {
    "the timer that ends the process is armed after the claim": Mutant(
        "http.endpoint:_Endpoint",
        both(
            replace("self.lifetime($DEADLINE)", "__import__('contextlib').nullcontext()"),
            instead_of(
                "return self.function($EVENT, $CONTEXT, **$EXTRA)",
                "with self.lifetime(attempt.deadline): return self.function($EVENT, $CONTEXT, **$EXTRA)",
            ),
        ),
        promise=2,
        where=unit("handler/process_end"),
    ),
    "a request without a key runs unprotected": Mutant(
        "http.endpoint:_Endpoint.response", leave_out("not self.required"), promise=3, where=HTTP
    ),
    "a failure is an answer although it may be tried again": Mutant(
        "http.endpoint:http_endpoint", argument("failures_are_answers", "True"), where=HTTP
    ),
    "tenants share their keys": Mutant(
        "http.endpoint:_Endpoint._key_of", replace("quote($SCOPE, ...)", "$SCOPE"), where=HTTP
    ),
    "the loser's answer is given": Mutant(
        "http.endpoint:_Endpoint._response_to",
        replace("self._replayed($RECORD, request)", "$0 if result is None else result"),
        promise=4,
        where=HTTP,
    ),
    "an answer is given whose transaction was not committed": Mutant(
        "http.endpoint:_Endpoint._response_to", always("not self._is_final($RESULT)"), promise=3, where=HTTP
    ),
    "an exception's text is answered": Mutant(
        "http.endpoint:_Endpoint._response_to",
        replace(
            "responses.generic_failure() if $RECORDED else $NOT",
            "responses.problem(HTTPStatus.BAD_REQUEST, 'failed', str(ended.error)) if $RECORDED else $NOT",
        ),
        where=HTTP,
    ),
    "a failure that was not recorded is the last word": Mutant(
        "http.endpoint:_Endpoint._response_to",
        replace("responses.generic_failure() if $RECORDED else $NOT", "responses.generic_failure()"),
        promise=1,
        where=HTTP,
    ),
    "an answer that is not final is kept": Mutant(
        "http.endpoint:_Endpoint._is_final", returns("True"), promise=1, where=HTTP
    ),
    "a replay is not marked as one": Mutant("http.response:marked_as_replayed", leave_out("REPLAYED"), where=HTTP),
    "an answer that was not kept is an empty one": Mutant(
        "http.endpoint:_Endpoint._replayed",
        replace("responses.gone()", "responses.json_response(200, '', {})"),
        where=HTTP,
    ),
    "a bucket that does not answer has lost the answer": Mutant(
        "http.endpoint:_Endpoint._replayed",
        replace("responses.unread() if $RETRY else $GONE", "$GONE"),
        promise=1,
        where=CALLED,
    ),
    "a winner that has failed is waited for": Mutant(
        "http.response:without_answer", always("Status.INPROGRESS"), where=HTTP
    ),
    # What counts of a request.
    "two keys that were joined are one": Mutant("http.request:header.key", never("','"), promise=3, where=HTTP),
    "a header is found in one case only": Mutant("http.request:request_of", replace("str.lower", "str"), where=HTTP),
    "a parameter hides behind another spelling of its name": Mutant(
        "http.request:_every_value", replace("frozenset($FOUND)", "$FOUND"), promise=3, where=HTTP
    ),
    "a request of nobody runs unprotected where no key is required": Mutant(
        "http.request:scope_of", replace("MissingKey", "ZeroDivisionError"), promise=3, where=HTTP
    ),
    "the path does not count": Mutant("http.request:Request.fingerprint", leave_out("self.path"), where=HTTP),
    "the query string does not count": Mutant(
        "http.request:Request.fingerprint", leave_out("self.query"), promise=3, where=HTTP + unit("workflow/endpoint")
    ),
    "the order of a query string's names counts": Mutant(
        "http.request:request_of", replace("sorted($PAIRS, ...)", "$PAIRS"), promise=3, where=HTTP
    ),
    "the order of one name's values does not count": Mutant(
        "http.request:request_of", leave_out("itemgetter(0)"), promise=3, where=HTTP
    ),
    "a load balancer's parameters count as they were encoded": Mutant(
        "http.request:request_of", leave_out("partial(unquote_plus, ...)"), promise=3, where=HTTP
    ),
}
