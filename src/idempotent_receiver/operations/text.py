"""Makes untrusted text safe to show and store."""

import unicodedata


def escaped(text: object) -> str:
    r"""The text with control characters, bidi marks and lone surrogates escaped, as in `\u202e`; empty for None.

    Line breaks stay. The result cannot control or mislead a terminal or page that shows it.
    """
    shown = "" if text is None else str(text)
    return shown if shown.isprintable() else "".join(map(_escaped, shown))


def _escaped(sign: str) -> str:
    if sign.isprintable() or sign == "\n" or unicodedata.category(sign) == "Zs":
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) <= 0xFFFF else f"\\U{ord(sign):08x}"
