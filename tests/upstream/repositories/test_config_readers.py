"""Functions of authors that read a field of a config."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import find_reference

TEXT = """import torch
def value_of(config, key, default):
    \"\"\"Return it.\"\"\"
    {body}

class Net(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.width = config["width"]
        self.extra = value_of(
            config, "extra", default=None)
        self.last = 1

    def forward(self, x, t):
        return x
"""


@pytest.mark.parametrize("body", [
    "return config[key] if key in config else default",
    "if key in config:\n        return config[key]\n    return default",
    "return config.get(key, default)",
    "return getattr(config, key, default)",
])  # fmt: skip
def test_a_function_that_reads_a_field_is_read_through(body: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(text := TEXT.format(body=body), encoding="utf-8")
    found = find_reference(f"{tmp_path}::Net")
    assert found.namespace is not None
    assert [*found.namespace.fields] == ["width", "extra"]
    assert found.arguments["extra"].default is None
    assert found.cls.source.text.split("\n").index("        self.last = 1") == text.split("\n").index(
        "        self.last = 1"
    )


def test_a_function_that_does_more_is_not(tmp_path: Path) -> None:
    body = "return 2 * config[key] if key in config else default"
    (tmp_path / "m.py").write_text(TEXT.format(body=body), encoding="utf-8")
    assert find_reference(f"{tmp_path}::Net").namespace is None
