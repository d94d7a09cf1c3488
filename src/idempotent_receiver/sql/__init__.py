"""Records in a relational database, so that a message's record and its handler's rows share one database transaction.

Needs the extra `sql` (SQLAlchemy 2) and the database's driver. No other part of the library imports this package.
"""

from idempotent_receiver.sql.lent import current_session
from idempotent_receiver.sql.store import SQLStore
from idempotent_receiver.sql.table import records_table

__all__ = ["SQLStore", "current_session", "records_table"]
