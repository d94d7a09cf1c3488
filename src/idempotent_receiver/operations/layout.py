"""How rows and texts stand on a terminal: clean, and with nothing broken that a person may want to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType


COLUMNS = 80
INDENT = "    "
CONTINUED = " \\"


def clean(text: object) -> str:
    """A text that does to a terminal nothing but show: what others wrote may hold control sequences."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in str(text)
    )


def counted(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def command(*parts: str) -> str:
    """A command to be typed, of parts that are not to be broken, over as many lines as it takes; a shell joins them."""
    lines = [INDENT + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + len(CONTINUED) < COLUMNS:
            lines[-1] += f" {part}"
        else:
            lines[-1] += CONTINUED
            lines.append(f"{INDENT}  {part}")
    return clean("\n".join(lines))


def table_of(*columns: str, text: str) -> Table:
    """A table in which only the column `text` is wrapped: all others are short."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        justify: Any = "right" if column == "letters" else "left"
        table.add_column(column, overflow="fold", no_wrap=column != text, justify=justify)
    return table


def row(table: Table, *cells: object) -> None:
    """Add a row."""
    table.add_row(*(Text(clean("" if cell is None else cell)) for cell in cells))


def listing(columns: Sequence[str], rows: Sequence[tuple[Sequence[object], Sequence[str | None]]]) -> RenderableType:
    """Rows of what may be copied, each with its texts below it. A row that is too long is wrapped between its cells, as
    all others and the header then are, so that a key is broken only where no line could hold it.
    """
    cleaned = [[clean("" if cell is None else cell) for cell in cells] for cells, _ in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cleaned, strict=True)]
    shown: list[RenderableType] = [line(columns, widths, style="bold")]
    for cells, (_, texts) in zip(cleaned, rows, strict=True):
        shown.append(line(cells, widths))
        shown += [Padding.indent(Text(clean(text), overflow="fold"), 2) for text in texts if text]
    return Group(*shown)


def line(cells: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    """A line of cells, wrapped between them."""
    padded = (set_cell_size(cell, max(width, cell_len(cell))) for cell, width in zip(cells, widths, strict=True))
    return Text("  ".join(padded).rstrip(), style=style, overflow="fold")
