"""Which class of an integration is its model."""

from pathlib import Path

from omni_kit.targets.diffusers.model_dir import find_model_dir

MODEL = """
class Part(ModelMixin, ConfigMixin):
    pass


class Net(ModelMixin, ConfigMixin):
    def __init__(self):
        self.part = Part()
"""


def test_a_model_that_another_one_is_made_of_is_not_the_integrations(tmp_path: Path) -> None:
    (folder := tmp_path / "tiny").mkdir()
    (folder / "__init__.py").touch()
    (folder / "transformer_tiny.py").write_text(MODEL, encoding="utf-8")
    assert find_model_dir(folder).class_name == "Net"
