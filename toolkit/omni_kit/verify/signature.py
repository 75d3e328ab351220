"""SSH signatures of a card's checksum: Ed25519 keys, in the format of `ssh-keygen -Y` (OpenSSH's PROTOCOL.sshsig).

from omni_kit.verify.signature import Signer
text = Signer(Path("~/.ssh/id_ed25519").expanduser()).sign(checksum)

A checksum shows damage and nothing else: whoever edits a card can compute it again. A signature needs the key.
"""

import base64
import hashlib
import struct
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from omni_kit.errors import BadInput, MissingRequirement, reason

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAMESPACE = "omni-kit-card"
_ALGORITHM = b"ssh-ed25519"
_MAGIC = b"SSHSIG"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_INSTALL = "pip install 'omni-kit[sign]'"
_GENERATE = "generate one: ssh-keygen -t ed25519 -N '' -f KEY"


@dataclass(frozen=True)
class Signer:
    """A private Ed25519 key in OpenSSH's format.

    Raises:
        BadInput: the file is not such a key, or it has a passphrase.
        MissingRequirement: `cryptography` is not installed.
    """

    file: Path
    _key: "Ed25519PrivateKey" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        except ImportError as error:
            raise MissingRequirement("signing a card needs the package cryptography", _INSTALL) from error
        try:
            key = load_ssh_private_key(self.file.read_bytes(), None)
        except OSError as error:
            raise BadInput(f"cannot read {self.file}: {reason(error)}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise BadInput(f"{self.file} is not an SSH private key without a passphrase: {error}", _GENERATE) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadInput(f"{self.file} is not an Ed25519 key", _GENERATE)
        object.__setattr__(self, "_key", key)

    @property
    def fingerprint(self) -> str:
        """Return "SHA256:...", as `ssh-keygen -l` prints it."""
        return _fingerprint(self._public)

    def sign(self, checksum: str) -> str:
        """Return the armored signature of a checksum."""
        body = _envelope(self._public, self._key.sign(_signed(checksum)))
        return "\n".join([_BEGIN, *textwrap.wrap(base64.b64encode(body).decode(), 70), _END])

    @property
    def _public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()


def signer_of(checksum: str, signature: str) -> str:
    """Return the fingerprint of the key that signed a checksum.

    Raises:
        BadInput: the signature is not one of this checksum by the key that it names.
        MissingRequirement: `cryptography` is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise MissingRequirement("reading a signed card needs the package cryptography", _INSTALL) from error
    text = signature.strip().removeprefix(_BEGIN).removesuffix(_END)
    try:
        body = base64.b64decode("".join(text.split()), validate=True)
        public, made = body[_PUBLIC], body[-64:]
        if body != _envelope(public, made):
            raise ValueError
        Ed25519PublicKey.from_public_bytes(public).verify(made, _signed(checksum))
    except (ValueError, InvalidSignature) as error:
        raise BadInput("the card's signature does not match its content", "verify and sign again") from error
    return _fingerprint(public)


def fingerprint_of(file: Path) -> str:
    """Return the fingerprint of a public key file, as `id_ed25519.pub`.

    Raises:
        BadInput: the file is not a public SSH key.
    """
    try:
        blob = base64.b64decode(file.read_text(encoding="utf-8").split()[1], validate=True)
    except (OSError, ValueError, IndexError) as error:
        raise BadInput(f"{file} is not a public SSH key", "pass the .pub file of the signer's key") from error
    if blob != _blob(blob[-32:]):
        raise BadInput(f"{file} is not an Ed25519 key", _GENERATE)
    return _fingerprint(blob[-32:])


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _blob(public: bytes) -> bytes:
    return _string(_ALGORITHM) + _string(public)


# Between the public key and the signature, and before what is signed: namespace, reserved, hash.
_HEAD = _string(NAMESPACE.encode()) + _string(b"") + _string(b"sha512")
_VERSION = struct.pack(">I", 1)
_PUBLIC_AT = len(_MAGIC + _VERSION) + 4 + len(_blob(b""))
_PUBLIC = slice(_PUBLIC_AT, _PUBLIC_AT + 32)


def _envelope(public: bytes, signature: bytes) -> bytes:
    """Return the file format around a signature: of fixed size, as a public key has 32 bytes and a signature 64."""
    inner = _string(_ALGORITHM) + _string(signature)
    return _MAGIC + _VERSION + _string(_blob(public)) + _HEAD + _string(inner)


def _signed(checksum: str) -> bytes:
    return _MAGIC + _HEAD + _string(hashlib.sha512(checksum.encode()).digest())


def _fingerprint(public: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(_blob(public)).digest()).decode().rstrip("=")
