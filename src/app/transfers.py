"""A message's body: a transfer of money between two accounts."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]


class Transfer(BaseModel):
    """Move `amount`, in the currency's minor units (cents), from one account to another.

    A `receipt` moves no money: it reports that a workflow has moved it.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    transfer_id: Name
    from_account: Name
    to_account: Name
    amount: Annotated[int, Field(gt=0, le=10**15)]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    receipt: bool = False

    @model_validator(mode="after")
    def _goes_somewhere(self) -> Self:
        if self.from_account == self.to_account:
            raise ValueError("from_account and to_account are the same")
        return self
