"""Files of the cache that nobody else can forge: each carries a code made with the user's key.

The key is in the user's configuration directory, which is closed to processes that run an integration. It protects
nothing if the system cannot close it; see `isolation.confinement.can_confine`.
"""

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import config_directory, write_atomic

_BYTES = 32


def write_keyed(file: Path, text: str) -> None:
    """Write a text with its code; nothing if the file or the key cannot be written."""
    if key := own_key():
        with suppress(BadInput):
            write_atomic(file, f"{_code(key, file, text)}\n{text}")


def read_keyed(file: Path) -> str:
    """Return the text of a file that this user's omni-kit wrote under this name.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not such a file.
    """
    code, _, text = file.read_text(encoding="utf-8").partition("\n")
    key = own_key()
    if not key or not hmac.compare_digest(code.encode(), _code(key, file, text).encode()):
        raise ValueError(f"{file} was not written by this user's omni-kit")
    return text


def own_key() -> bytes:
    """Return the user's key, made when it is first needed; empty if it cannot be kept."""
    file = config_directory() / "key"
    with suppress(OSError, ValueError):
        if len(key := bytes.fromhex(file.read_text(encoding="ascii"))) == _BYTES:
            return key
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".key.{secrets.token_hex(8)}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(secrets.token_hex(_BYTES))
        os.replace(temporary, file)
        return bytes.fromhex(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return b""


def _code(key: bytes, file: Path, text: str) -> str:
    return hmac.new(key, f"{file.parent.name}/{file.name}\n{text}".encode(), hashlib.sha256).hexdigest()
