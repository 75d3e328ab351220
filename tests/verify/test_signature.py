"""Signed cards: the signature is one that OpenSSH makes and reads, and it fails for other content or another key."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from omni_kit.cli import main
from omni_kit.errors import BadInput
from omni_kit.verify.card import Card, Stage, load_card
from omni_kit.verify.signature import NAMESPACE, Signer, fingerprint_of, signer_of

CARD = Card("plugins/mine", {"quick": True}, [Stage("check", "passed")])
_OPENSSH = shutil.which("ssh-keygen")


def write_key(file: Path) -> Path:
    key = Ed25519PrivateKey.generate()
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    file.chmod(0o600)
    file.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return file


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return write_key(tmp_path / "mine")


@pytest.mark.parametrize("suffix", [".json", ".md"])
def test_a_signed_card_names_its_signer(suffix: str, key: Path, tmp_path: Path) -> None:
    file = tmp_path / f"card{suffix}"
    signer = Signer(key)
    file.write_text(CARD.markdown(signer) if suffix == ".md" else CARD.dumps(signer), encoding="utf-8")

    assert load_card(file).signer == signer.fingerprint == fingerprint_of(key.with_suffix(".pub"))


def test_a_card_without_a_signature_has_no_signer(tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    file.write_text(CARD.dumps(), encoding="utf-8")
    assert load_card(file).signer == ""


def test_another_content_does_not_match_the_signature(key: Path, tmp_path: Path) -> None:
    """Whoever edits a card can compute its checksum again, and cannot sign it."""
    other = Card("plugins/mine", {"quick": False}, [Stage("check", "passed")])
    signature = json.loads(CARD.dumps(Signer(key)))["signature"]
    file = tmp_path / "card.json"
    file.write_text(json.dumps({**json.loads(other.dumps()), "signature": signature}), encoding="utf-8")

    with pytest.raises(BadInput, match="does not match its content"):
        load_card(file)


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----"])
def test_what_is_not_a_signature_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="signature"):
        signer_of("0" * 64, text)


def test_no_changed_byte_passes(key: Path) -> None:
    signature = Signer(key).sign("0" * 64)
    lines = signature.splitlines()
    middle = "".join(lines[1:-1])
    for at in range(0, len(middle) - 2, 7):
        changed = middle[:at] + ("A" if middle[at] != "A" else "B") + middle[at + 1 :]
        with pytest.raises(BadInput):
            signer_of("0" * 64, "\n".join([lines[0], changed, lines[-1]]))


@pytest.mark.skipif(_OPENSSH is None, reason="OpenSSH is not installed")
def test_openssh_reads_our_signature_and_we_read_openssh_s(key: Path, tmp_path: Path) -> None:
    checksum = "ab" * 32
    allowed, ours = tmp_path / "allowed", tmp_path / "ours.sig"
    allowed.write_text(f"me {key.with_suffix('.pub').read_text()}\n")
    ours.write_text(Signer(key).sign(checksum) + "\n")
    verify = ["-Y", "verify", "-f", str(allowed), "-I", "me", "-n", NAMESPACE, "-s", str(ours)]
    subprocess.run([str(_OPENSSH), *verify], input=checksum.encode(), check=True, capture_output=True)

    sign = [str(_OPENSSH), "-Y", "sign", "-f", str(key), "-n", NAMESPACE]
    theirs = subprocess.run(sign, input=checksum.encode(), check=True, capture_output=True).stdout.decode()
    assert signer_of(checksum, theirs) == Signer(key).fingerprint


@pytest.mark.parametrize("content", [None, b"", b"no key"])
def test_a_file_that_is_not_a_key_is_bad_input(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    for read in (Signer, fingerprint_of):
        with pytest.raises(BadInput):
            read(file)


@pytest.mark.skipif(_OPENSSH is None, reason="OpenSSH is not installed")
def test_a_key_with_a_passphrase_is_refused(key: Path) -> None:
    subprocess.run([str(_OPENSSH), "-q", "-p", "-N", "secret", "-f", str(key)], check=True, capture_output=True)
    with pytest.raises(BadInput, match="without a passphrase"):
        Signer(key)


def test_other_kinds_of_keys_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "ecdsa"
    made = generate_private_key(SECP256R1())
    file.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    with pytest.raises(BadInput, match="Ed25519"):
        Signer(file)


class TestCommand:
    def test_a_card_that_another_key_signed_is_refused(
        self, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = write_key(tmp_path / "other").with_suffix(".pub")
        for name, text in (("plain", CARD.dumps()), ("signed", CARD.dumps(Signer(key)))):
            file = tmp_path / f"{name}.json"
            file.write_text(text, encoding="utf-8")
            assert main(["verify", "--card", str(file), "--signed-by", str(other)]) == 2
            assert "did not sign" in capsys.readouterr().err

    def test_sign_needs_a_path_and_a_card(self, key: Path) -> None:
        assert main(["verify", "plugins/mine", "--sign", str(key)]) == 2
        assert main(["verify", "--card", "card.json", "--sign", str(key)]) == 2
        assert main(["verify", "plugins/mine", "--card", "card.json", "--signed-by", str(key)]) == 2
