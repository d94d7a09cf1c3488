"""Chance that keeps its promises: a deck of cards, so that what is in it comes as often as it is in it, at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

Card = TypeVar("Card")


class Deck(Generic[Card]):
    """Deals each of `cards` once in every `size` draws, and None otherwise, in an order that chance decides."""

    def __init__(self, chance: random.Random, cards: Sequence[Card], size: int) -> None:
        assert 0 < len(cards) <= size
        self._chance = chance
        self._all: list[Card | None] = [*cards, *[None] * (size - len(cards))]
        self._left: list[Card | None] = []

    def draw(self) -> Card | None:
        """The next card."""
        if not self._left:
            self._left = self._chance.sample(self._all, len(self._all))
        return self._left.pop()

    def put_back(self, card: Card) -> None:
        """Deal it again next: it could not be played."""
        self._left.append(card)
