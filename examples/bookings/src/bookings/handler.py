"""Books a room for a day, in PostgreSQL. Of two guests who want the same, one is booked; the other is a dead letter."""

import os
from datetime import date

import boto3
from idempotent_receiver import PermanentError, sqs_consumer
from idempotent_receiver.sql import SQLStore
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from bookings.database import Booking, engine, records

store = SQLStore(engine, table=records)


class Request(BaseModel):
    room: str
    day: date
    guest: str


@sqs_consumer(
    store,
    sqs=boto3.client("sqs"),
    dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"],
    max_attempts=10,
)
def lambda_handler(request: Request, session: Session) -> None:
    """The booking and the message's record are written in one transaction, or not at all."""
    if session.scalar(select(Booking).filter_by(room=request.room, day=request.day)):
        raise PermanentError("the room is taken on that day")
    session.add(Booking(**request.model_dump()))  # of two at once, one is refused, and reads when it comes again
