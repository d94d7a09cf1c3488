"""Chance that keeps its promises: what is in a shuffle bag comes as often as it is in it, at random moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

Token = TypeVar("Token")


class ShuffleBag(Generic[Token]):
    """Gives each of `tokens` once in every `size` draws, and None otherwise, in an order that chance decides."""

    def __init__(self, chance: random.Random, tokens: Sequence[Token], size: int) -> None:
        assert 0 < len(tokens) <= size
        self._chance = chance
        self._all: list[Token | None] = [*tokens, *[None] * (size - len(tokens))]
        self._left: list[Token | None] = []

    def draw(self) -> Token | None:
        if not self._left:
            self._left = self._chance.sample(self._all, len(self._all))
        return self._left.pop()

    def put_back(self, token: Token) -> None:
        """Give it again next: it could not be used."""
        self._left.append(token)
