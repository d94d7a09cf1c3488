"""Makes text from others safe to show and store."""

import unicodedata


def escaped(text: object) -> str:
    r"""A text, nothing for None, in which control characters, bidi marks and lone surrogates are spelt out: `\u202e`.

    Line breaks stay. A terminal or a page that shows it can neither be controlled nor misled.
    """
    shown = "" if text is None else str(text)
    return shown if shown.isprintable() else "".join(map(_escaped, shown))


def _escaped(sign: str) -> str:
    if sign.isprintable() or sign == "\n" or unicodedata.category(sign) == "Zs":
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) <= 0xFFFF else f"\\U{ord(sign):08x}"
