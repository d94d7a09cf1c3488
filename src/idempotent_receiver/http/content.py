"""What counts of a request's body: its content without a coding, and a multipart body's parts without their boundary.

Readers differ in what they make of a body that its headers do not describe exactly. Such a body counts by its bytes.
"""

import re
import zlib
from collections.abc import Sequence

LARGEST_CONTENT_BYTES = 10 * 1024 * 1024
"""API Gateway's limit for a body. A body with a larger content counts by its bytes, and is not decompressed further."""

_ZLIB, _GZIP = zlib.MAX_WBITS, zlib.MAX_WBITS + 16
_CODINGS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
"""zlib's names for the formats of these content codings (RFC 9110). Deflate without zlib's frame is not one of them: it
has no checksum, and not all readers take it.
"""

_PARAMETER = re.compile(r'[ \t]*;[ \t]*([\w-]+)=(?:"([^"\\]+)"|([^\s;,"]+))')
_MULTIPART = re.compile(rf"(multipart/(?:form-data|related|mixed))((?:{_PARAMETER.pattern})*)[ \t]*", re.IGNORECASE)


def content_of(body: bytes, codings: Sequence[str]) -> bytes:
    """The content of a body with one of these codings, if the body is one whole member, with nothing behind it, of at
    most 10 MB; otherwise the body. `codings` are the values of Content-Encoding.
    """
    if len(codings) != 1 or (bits := _CODINGS.get(codings[0].strip().lower())) is None:
        return body
    member = zlib.decompressobj(bits)
    try:
        content = member.decompress(body, LARGEST_CONTENT_BYTES + 1)
    except zlib.error:
        return body
    is_whole = member.eof and not member.unused_data
    return content if is_whole and len(content) <= LARGEST_CONTENT_BYTES else body


def parts_of(content: bytes, content_types: Sequence[str]) -> tuple[str, bytes] | None:
    """The kind of a multipart content, and its parts, each with its length. None for other types, and if the boundary
    also appears anywhere but between parts.
    """
    if (told := _kind_and_boundary(content_types)) is None:
        return None
    kind, boundary = told
    before, *parts = content.split(b"--" + boundary)
    if before or not parts or parts[-1] not in (b"--", b"--\r\n"):
        return None
    if not all(part.startswith(b"\r\n") and part.endswith(b"\r\n") and len(part) >= 4 for part in parts[:-1]):
        return None
    return kind, b"".join(b"%d:%b" % (len(part), part) for part in parts)


def _kind_and_boundary(content_types: Sequence[str]) -> tuple[str, bytes] | None:
    """What a multipart content's type says; None for other types, or if there is not exactly one boundary. The kind has
    the type's other parameters: `start` names the part that is the root of related ones.
    """
    if len(content_types) != 1 or (found := _MULTIPART.fullmatch(content_types[0])) is None:
        return None
    parameters = [(name.lower(), quoted or plain) for name, quoted, plain in _PARAMETER.findall(found[2])]
    told = [value for name, value in parameters if name == "boundary"]
    others = sorted(f"; {name}={value}" for name, value in parameters if name != "boundary")
    kind = "".join([found[1].lower(), *(others if found[1].lower() == "multipart/related" else [])])
    return (kind, told[0].encode("utf-8", "surrogatepass")) if len(told) == 1 else None
