"""A framework's own class of results, where upstream returns another class."""

from pathlib import Path

import pytest

from omni_kit.patchgen.upgrade.configs import upgrade_configs

from .libraries import write_libraries

MODELING = """
from small.outputs import CausalOutput


class Model:
    def forward(self, ids):
        outputs = self.model(ids)
        logits = self.head(outputs.hidden)
        return CausalOutput(logits=logits, hidden=outputs.hidden)
"""
OURS = """
from small.outputs import CausalOutput, MoeOutput


class More:
    extra = None


class CausalOutputWithMore(More, CausalOutput):
    pass


class MoeOutputWithMore(More, MoeOutput):
    pass
"""
CONFIG = """
from omni_kit.patchgen import PatchConfig
from framework.outputs import CausalOutputWithMore

config = PatchConfig(source_module="small.modeling", target_file="patched.py")
config.add_import("framework.outputs", names=["CausalOutputWithMore"])


@config.override_method("Model.forward")
def forward(self, ids) -> CausalOutputWithMore:
    outputs = self.model(ids)
    logits, extra = fused(self.head, outputs.hidden)
    return CausalOutputWithMore(logits=logits, extra=extra, hidden=outputs.hidden)
"""
NEW = MODELING.replace("CausalOutput", "MoeOutput").replace("hidden)\n", "hidden, router=outputs.router)\n")
NEW = NEW.replace("(outputs.hidden, router=outputs.router)", "(outputs.hidden)")


def upgraded(folder: Path, ours: str, config: str = CONFIG) -> tuple[str, str]:
    """The status of the patch, and the config's new text."""
    outputs = {"outputs": "class CausalOutput: ...\nclass MoeOutput: ...\n"}
    libraries = write_libraries(folder, "small", {"modeling": MODELING, **outputs}, {"modeling": NEW, **outputs})
    (folder / "framework").mkdir()
    (folder / "framework" / "__init__.py").touch()
    (folder / "framework" / "outputs.py").write_text(ours, encoding="utf-8")
    path = folder / "a_patch_gen_config.py"
    path.write_text(config, encoding="utf-8")
    (result,) = upgrade_configs([path], *libraries, "small").configs
    return result.patches[0].status, path.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)


def test_the_one_class_that_extends_the_new_one_follows(tmp_path: Path) -> None:
    status, text = upgraded(tmp_path, OURS)
    assert status == "merged"
    assert "def forward(self, ids) -> MoeOutputWithMore:" in text
    assert "return MoeOutputWithMore(logits=logits, extra=extra, hidden=outputs.hidden, router=outputs.router)" in text
    assert "from framework.outputs import MoeOutputWithMore\n" in text
    assert 'config.add_import("framework.outputs", names=["MoeOutputWithMore"])' in text


def test_a_class_that_only_the_generated_file_imports_follows(tmp_path: Path) -> None:
    config = CONFIG.replace("from framework.outputs import CausalOutputWithMore\n", "")
    config = config.replace(" -> CausalOutputWithMore", "")
    status, text = upgraded(tmp_path, OURS, config)
    assert status == "merged"
    assert 'config.add_import("framework.outputs", names=["MoeOutputWithMore"])' in text
    assert "from framework" not in text


@pytest.mark.parametrize(
    "ours",
    [OURS.replace("(More, MoeOutput)", "(MoeOutput)"), OURS + "\n\nclass OtherWithMore(More, MoeOutput):\n    pass\n"],
    ids=["none", "two"],
)
def test_no_class_or_several_are_left_to_a_person(tmp_path: Path, ours: str) -> None:
    status, text = upgraded(tmp_path, ours)
    assert status == "conflict"
    assert "return CausalOutputWithMore(" in text


OWN = """
from omni_kit.patchgen import PatchConfig
from small.modeling import CausalOutput

config = PatchConfig(source_module="small.modeling", target_file="patched.py")


@config.add_helper_after("CausalOutput")
class CausalOutputWithMore(CausalOutput):
    extra = None


@config.override_method("Model.forward")
def forward(self, ids) -> CausalOutput:
    outputs = self.model(ids)
    logits = fused(self.head, outputs.hidden)
    return CausalOutputWithMore(logits=logits, hidden=outputs.hidden)
"""


@pytest.mark.parametrize(
    "home", ["small.outputs import PlainOutput", "small.outputs import CausalOutput as PlainOutput"]
)
def test_a_helper_class_extends_the_class_that_upstream_returns_now(tmp_path: Path, home: str) -> None:
    old = MODELING.replace("from small.outputs import CausalOutput\n", "\nclass CausalOutput: ...\n")
    new = MODELING.replace("small.outputs import CausalOutput", home).replace(
        "return CausalOutput(", "return PlainOutput("
    )
    outputs = {"outputs": "class CausalOutput: ...\nclass PlainOutput: ...\n"}
    libraries = write_libraries(tmp_path, "small", {"modeling": old, **outputs}, {"modeling": new, **outputs})
    path = tmp_path / "a_patch_gen_config.py"
    path.write_text(OWN, encoding="utf-8")
    (result,) = upgrade_configs([path], *libraries, "small").configs
    text = path.read_text(encoding="utf-8")
    assert not result.error
    assert "@config.add_helper\nclass CausalOutputWithMore(PlainOutput):" in text
    assert "-> PlainOutput:" in text


def test_two_uses_of_one_text_return_classes_of_their_own(tmp_path: Path) -> None:
    two = MODELING + MODELING[MODELING.index("class Model") :].replace("class Model", "class OtherModel")
    config = CONFIG.replace("CausalOutputWithMore", "CausalOutput").replace("framework.outputs", "small.outputs")
    config = (
        config.replace("extra=extra, ", "")
        + """

config.override_method("OtherModel.forward", replacement=forward, name_map={"fused": "other_fused"})
"""
    )
    new = two.replace("CausalOutput(", "PlainOutput(", 1).replace("return CausalOutput(", "return MoeOutput(")
    new = new.replace("import CausalOutput", "import MoeOutput, PlainOutput")
    outputs = {"outputs": "class CausalOutput: ...\nclass PlainOutput: ...\nclass MoeOutput: ...\n"}
    libraries = write_libraries(tmp_path, "small", {"modeling": two, **outputs}, {"modeling": new, **outputs})
    path = tmp_path / "a_patch_gen_config.py"
    path.write_text(config, encoding="utf-8")
    (result,) = upgrade_configs([path], *libraries, "small").configs
    assert [one.status for one in result.patches] == ["merged", "merged"]
    assert '"PlainOutput": "MoeOutput"' in path.read_text(encoding="utf-8")
