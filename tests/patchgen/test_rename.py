"""name_map: which identifiers it means, and what it leaves alone."""

from pathlib import Path

import pytest

from omni_kit.patchgen.fragment import Fragment
from omni_kit.patchgen.name_map import mapped
from omni_kit.patchgen.rename import rename

QWEN = {"Qwen3VL": "Qwen3VLMoe"}


@pytest.mark.parametrize(
    ("name", "name_map", "wanted"),
    [
        ("Qwen3VLModel", QWEN, "Qwen3VLMoeModel"),
        ("Qwen3VL", QWEN, "Qwen3VLMoe"),
        ("_Qwen3VLFake", QWEN, "_Qwen3VLMoeFake"),
        ("Qwen3VL_x", QWEN, "Qwen3VLMoe_x"),
        ("MyQwen3VLModel", QWEN, "MyQwen3VLModel"),
        ("Normaliser", {"Norm": "Wide"}, "Normaliser"),
        ("qwen3_forward", {"qwen3": "qwen3_moe"}, "qwen3_moe_forward"),
        ("qwen35_forward", {"qwen3": "qwen3_moe"}, "qwen35_forward"),
        ("Qwen3_5Model", {"Qwen3": "A", "Qwen3_5": "B"}, "BModel"),
        ("self", QWEN, "self"),
    ],
)
def test_mapped(name: str, name_map: dict[str, str], wanted: str) -> None:
    assert mapped(name, name_map) == wanted


def fragment(text: str, *decorators: str) -> Fragment:
    return Fragment("qwen_forward", "", decorators, text, "m", Path("m.py"), 1)


def test_rename_touches_identifiers_only() -> None:
    text = (
        "def qwen_forward(self, config: 'QwenConfig', kind=Qwen):\n"
        "    '''Qwen in words.'''\n"
        "    # Qwen in a comment\n"
        "    return modeling.QwenModel(QwenConfig, 'Qwen', f'{QwenConfig} Qwen', qwen_forward, MyQwen)\n"
    )
    result = rename(fragment(text, "@wrap(Qwen)"), {"Qwen": "QwenMoe", "qwen": "other", "unused": "x"})
    assert result.fragment.text == (
        "def qwen_forward(self, config: 'QwenMoeConfig', kind=QwenMoe):\n"
        "    '''Qwen in words.'''\n"
        "    # Qwen in a comment\n"
        "    return modeling.QwenMoeModel(QwenMoeConfig, 'Qwen', f'{QwenMoeConfig} Qwen', qwen_forward, MyQwen)\n"
    )
    assert result.fragment.decorators == ("@wrap(QwenMoe)",)
    assert result.renamed["QwenConfig"] == "QwenMoeConfig"
    assert "unused" in result.unused
    assert "MyQwen" in result.passed_over


def test_no_name_map_changes_nothing() -> None:
    given = fragment("def qwen_forward(): ...\n")
    assert rename(given, None).fragment is given


def test_renaming_the_definition_itself() -> None:
    text = "async  def qwen_forward(n):\n    return qwen_forward(n - 1), 'qwen_forward'\n"
    whole = fragment(text).renamed("forward", inside=True)
    assert whole.text == "async  def forward(n):\n    return forward(n - 1), 'qwen_forward'\n"
    outside = fragment(text).renamed("forward", inside=False)
    assert "return qwen_forward(n - 1)" in outside.text
