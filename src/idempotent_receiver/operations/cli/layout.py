"""How rows and texts stand on a terminal: clean, and with nothing broken that a person may want to copy."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

COLUMNS = 80
INDENT = "    "
CONTINUED = " \\"


def clean(text: object) -> str:
    """A text, nothing for None, that can only be shown: what others wrote may hold control sequences."""
    return "".join(
        sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}"
        for sign in ("" if text is None else str(text))
    )


def counted(number: int, noun: str) -> str:
    """A number of something."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def moment(epoch_ms: int) -> str:
    """A time, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def command(*parts: str) -> str:
    """A command to type, on as many lines as it takes. No part is broken, and a shell joins the lines."""
    lines = [INDENT + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + len(CONTINUED) < COLUMNS:
            lines[-1] += f" {part}"
        else:
            lines[-1] += CONTINUED
            lines.append(f"{INDENT}  {part}")
    return clean("\n".join(lines))


def table_of(*columns: str, wrapped: str) -> Table:
    """A table of counts, in which only the column `wrapped` may be wrapped: all others are short."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        justify = "right" if column == columns[0] else "left"
        table.add_column(column, overflow="fold", no_wrap=column != wrapped, justify=justify)  # type: ignore[arg-type]
    return table


def row(table: Table, *cells: object) -> None:
    """Add a row."""
    table.add_row(*(Text(clean(cell)) for cell in cells))


def listing(columns: Sequence[str], rows: Sequence[tuple[Sequence[object], Sequence[str | None]]]) -> RenderableType:
    """Rows of cells that may be copied, each with its texts below it.

    A row that is too long is wrapped between its cells, and so is every other row, the header included. So a key is
    broken only where no line could hold it.
    """
    cleaned = [[clean(cell) for cell in cells] for cells, _ in rows]
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
