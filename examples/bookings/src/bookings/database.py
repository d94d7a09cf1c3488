"""The tables, and the database that has them. `python -m bookings.database` creates them."""

import os
from datetime import date

import boto3
from idempotent_receiver.sql import records_table
from sqlalchemy import UniqueConstraint, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Booking(Base):
    __tablename__ = "bookings"
    __table_args__ = (UniqueConstraint("room", "day"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    room: Mapped[str]
    day: Mapped[date]
    guest: Mapped[str]


records = records_table(Base.metadata)


def database_url() -> str:
    """On Lambda, the secret's value: it is in no template and no setting, so no console shows it."""
    if url := os.environ.get("DATABASE_URL"):
        return url
    secret = boto3.client("secretsmanager").get_secret_value(SecretId=os.environ["DATABASE_URL_SECRET"])
    return secret["SecretString"]


engine = create_engine(database_url(), pool_pre_ping=True)  # Lambda freezes idle connections until they are dead

if __name__ == "__main__" or engine.dialect.name == "sqlite":  # `make local` begins with an empty SQLite database
    Base.metadata.create_all(engine)
