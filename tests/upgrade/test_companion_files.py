"""Names of parameters in a model's other files: followed where sure, left to a person where gone."""

from pathlib import Path

from omni_kit.patchgen.keys import KeyDrift
from omni_kit.upgrade.companion_files import follow_names

PLAN = '''"""Shards experts."""

PLAN = {"model.layers.*.mlp.experts.gate_up_proj": 0, "model.layers.*.mlp.router.weight": 1}
LORA = ["q_proj"]
'''


def test_a_renamed_part_is_followed(tmp_path: Path) -> None:
    (tmp_path / "parallel_plan.py").write_text(PLAN, encoding="utf-8")
    drift = [KeyDrift("a", renamed={"model.layers.*.mlp.router.weight": "model.layers.*.mlp.gate.weight"})]
    changed, left = follow_names(tmp_path, drift, tmp_path, write=True)
    assert changed == ["parallel_plan.py"]
    assert left == []
    assert (tmp_path / "parallel_plan.py").read_text(encoding="utf-8") == PLAN.replace("router", "gate")


def test_a_gone_part_is_left_to_a_person(tmp_path: Path) -> None:
    (tmp_path / "lora.py").write_text(PLAN, encoding="utf-8")
    drift = [KeyDrift("a", removed=["model.layers.*.self_attn.q_proj.weight"], added=["model.layers.*.qkv.weight"])]
    changed, left = follow_names(tmp_path, drift, tmp_path, write=True)
    assert changed == []
    assert [(one.path, one.line) for one in left] == [("lora.py", 4)]


def test_the_same_names_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "parallel_plan.py").write_text(PLAN, encoding="utf-8")
    assert follow_names(tmp_path, [KeyDrift("a")], tmp_path, write=True) == ([], [])
