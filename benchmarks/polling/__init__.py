"""The subjects that poll a queue themselves, as programs: each module is the worker's program or its argument.

All handlers read a message's body and return a small result, after the seconds that `HANDLER_SECONDS` names. Each
worker is set up as its own documentation recommends.
"""

import os

HANDLER_SECONDS = float(os.environ.get("HANDLER_SECONDS", "0"))
