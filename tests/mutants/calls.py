"""The bugs of single calls: HTTP requests, functions, the payloads and results that go with them."""

from __future__ import annotations

from tests.mutants.mutant import UNIT, Mutant

FUNCTION = (UNIT.format("function"),)
HTTP = (UNIT.format("http"),)

MUTANTS = [
    Mutant(
        name="a call in progress elsewhere runs as well",
        promise=2,
        file="once.py",
        old="            case record.InProgress(until_ms):\n                return Busy(until_ms)\n",
        new="            case record.InProgress(until_ms):\n"
        "                return Attempt(self._claim.id, self._key, 1, self._deadline, self._claim.owner)\n",
        where=FUNCTION + HTTP,
    ),
    Mutant(
        name="a call's lease ends before its invocation",
        promise=2,
        file="once.py",
        old="limits.deadline.ends_ms + int(limits.lease_margin_seconds * 1000)",
        new="limits.deadline.now_ms",
        where=FUNCTION + HTTP,
    ),
    Mutant(
        name="a call without a lease holds its key for ever",
        promise=6,
        file="function.py",
        old="        if self.seconds is None:\n",
        new="        if self.seconds is None:\n"
        "            return self._within(Deadline.after(self.clock, 10**12), 'anybody')\n"
        "        if False:\n",
        where=FUNCTION,
    ),
    Mutant(
        name="the loser's result is returned",
        promise=4,
        file="function.py",
        old="        if isinstance(ended, Completed):\n            return handled.result",
        new="        if hasattr(handled, 'result'):\n            return handled.result",
        where=FUNCTION,
    ),
    Mutant(
        name="the loser's answer is given",
        promise=4,
        file="http.py",
        old="            case Duplicate(record):\n                return self._replayed(record)\n",
        new="            case Duplicate(record):\n"
        "                return self._replayed(record) if handled is None else _returned(handled)\n",
        where=HTTP,
    ),
    Mutant(
        name="an answer is given that was not recorded",
        promise=3,
        file="once.py",
        old="                return Unsettled(why)\n",
        new="                return Completed(held.record)\n",
        where=FUNCTION + HTTP,
    ),
    Mutant(
        name="a transaction is committed with an answer that is not final",
        promise=5,
        file="once.py",
        old="            case Returned(data, actions) if keep:\n",
        new="            case Returned(data, actions):\n",
        where=HTTP,
    ),
    Mutant(
        name="a call's transaction is left out of its completion",
        promise=5,
        file="once.py",
        old="        if actions:\n            answer = commit(",
        new="        if False:\n            answer = commit(",
        where=FUNCTION,
    ),
    Mutant(
        name="a claim that came too late is kept",
        promise=6,
        file="once.py",
        old="                    self._settled(record.release(answer, self._deadline.now_ms))\n",
        new="",
        where=FUNCTION,
    ),
    Mutant(
        name="a wait has no end",
        file="once.py",
        old="        if left <= 0:\n            return False\n",
        new="        if left <= -600:\n            return False\n        left = max(left, 1)\n",
        where=HTTP,
    ),
    Mutant(
        name="a failure is an answer although it may be tried again",
        file="http.py",
        old='failures_are_answers=on_exception == "replay"',
        new="failures_are_answers=True",
        where=HTTP,
    ),
    Mutant(
        name="an exception's text is answered",
        file="http.py",
        old="        return problem.generic_failure() if recorded else problem.unsettled()\n",
        new="        return problem.bad_request('failed', str(error)) if recorded else problem.unsettled()\n",
        where=HTTP,
    ),
    Mutant(
        name="tenants share their keys",
        file="http.py",
        old="f\"{quote(scope, safe='')}#{keys.usable(made, str)}\"",
        new='f"{scope}#{keys.usable(made, str)}"',
        where=HTTP,
    ),
    Mutant(
        name="the path does not count",
        file="http.py",
        old="payload.fingerprint(request.document, request.method, request.path)",
        new="payload.fingerprint(request.document, request.method)",
        where=HTTP,
    ),
    Mutant(
        name="a header is found in one case only",
        file="request.py",
        old="found[name.lower()] = [str(value)]",
        new="found[name] = [str(value)]",
        where=HTTP,
    ),
    Mutant(
        name="a payload without its fields is a payload",
        file="payload.py",
        old="        if all(each is None for each in within):\n",
        new="        if found is None:\n",
        where=(UNIT.format("payload"),),
    ),
    Mutant(
        name="integers over 2^53 count as doubles",
        file="payload.py",
        old="            return rfc8785.dumps(part)\n",
        new="            return rfc8785.dumps(json.loads(json.dumps(part), parse_int=float))\n",
        where=(UNIT.format("payload"),),
    ),
    Mutant(
        name="two contexts run into each other",
        file="payload.py",
        old='digest.update(f"{len(part)}:".encode() + part.encode("utf-8", "surrogatepass"))',
        new='digest.update(part.encode("utf-8", "surrogatepass"))',
        where=(UNIT.format("payload"),),
    ),
    Mutant(
        name="a large result is written over another claim's",
        promise=4,
        file="results.py",
        old='results.put(f"{_owned(held.record.id)}{held.record.version}", data)',
        new='results.put(f"{_owned(held.record.id)}result", data)',
        where=(UNIT.format("results"),),
    ),
    Mutant(
        name="a result is read from wherever a record says",
        file="results.py",
        old='        if told.get("bucket") != self.bucket or not key.startswith(f"{self.prefix}{owned}"):\n',
        new="        if False:\n",
        where=(UNIT.format("results"),),
    ),
    Mutant(
        name="a bucket's trouble undoes the effect",
        promise=3,
        file="results.py",
        old="    except Exception as error:  # noqa: BLE001  # whatever the place of results raises\n"
        '        return dropped(f"{too_large}, and it could not be put elsewhere: {type(error).__name__}")\n',
        new="    except KeyError:\n        raise\n",
        where=(UNIT.format("results"),),
    ),
    Mutant(
        name="Powertools' live lease is not respected",
        promise=2,
        file="record.py",
        old="if seen.status == Status.INPROGRESS and seen.lease_until_ms is not None and now_ms < seen.lease_until_ms:",
        new="if seen.version and seen.status == Status.INPROGRESS and now_ms < (seen.lease_until_ms or 0):",
        where=(UNIT.format("powertools"),),
    ),
    Mutant(
        name="Powertools' fingerprint is taken for ours",
        file="record.py",
        old="    incomparable = seen.version is None and len(seen.validation) == _MD5_DIGITS\n",
        new="    incomparable = False\n",
        where=(UNIT.format("powertools"),),
    ),
]
