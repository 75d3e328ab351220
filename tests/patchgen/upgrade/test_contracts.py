"""What a merged patch reads of the results of upstream's functions."""

from pathlib import Path

import pytest

from omni_kit.patchgen.upgrade.configs import upgrade_configs

from .libraries import write_libraries

OLD = """
class Output:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Tower:
    def features(self, x):
        out = self.body(x)
        out.pooled = x + 1
        return out

    def body(self, x):
        return Output(last=x, pooled=x)


class Model(Tower):
    def forward(self, x, y=None):
        if y is None:
            x = self.features(x).pooled
        return self.body(x)
"""

CONFIG = '''"""What changes."""

from omni_kit.patchgen import PatchConfig

config = PatchConfig(source_module="tiny.modeling", target_file="patched_modeling.py")


@config.override_method("Model.forward")
def forward(self, x, y=None):
    if y is None:
        x = self.features(x).pooled
    else:
        x = x + 0 * self.features(y).pooled
    result = self.body(x)
    result.seen = True
    return result
'''


def reasons(folder: Path, new: str, old: str = OLD, text: str = CONFIG) -> list[str]:
    """Why the patch conflicts with a newer module."""
    libraries = write_libraries(folder, "tiny", {"modeling": old}, {"modeling": new})
    config = folder / "tiny_patch_gen_config.py"
    config.write_text(text, encoding="utf-8")
    (done,) = upgrade_configs([config], *libraries, "tiny").configs
    assert not done.error
    return [one.reason for one in done.patches if one.status == "conflict"]


def test_a_field_that_upstream_no_longer_reads_of_a_result(tmp_path: Path) -> None:
    new = OLD.replace("self.features(x).pooled", "self.features(x)").replace(
        "        out.pooled = x + 1\n        return out\n", "        return out.last\n"
    )
    assert reasons(tmp_path, new) == ["upstream no longer reads pooled of what self.features returns"]


def test_a_field_that_upstream_reads_of_a_local(tmp_path: Path) -> None:
    new = OLD.replace(
        "            x = self.features(x).pooled\n",
        "            found = self.features(x)\n            x = found.pooled\n",
    )
    assert "no longer reads" not in "".join(reasons(tmp_path, new.replace("x + 1", "x + 2")))


@pytest.mark.parametrize(("made", "conflicts"), [("Other(last=x, pooled=x)", 0), ("Other(last=x, other=x)", 1)])
def test_a_result_of_another_class_is_the_same_while_its_fields_are(tmp_path: Path, made: str, conflicts: int) -> None:
    found = reasons(tmp_path, OLD.replace("Output(last=x, pooled=x)", made))
    assert sum("returns something else" in one for one in found) == conflicts


ROUTER = """
def turn(q, axis=1):
    return q + axis


class Layer:
    def attend(self, x):
        q = turn(x)
        return q, x

    def forward(self, x, y=None):
        x, _ = self.attend(x)
        return x
"""
LAYER = (
    CONFIG[: CONFIG.index("@config")].replace("What changes", "Layers")
    + """@config.override_method("Layer.forward")
def forward(self, x, y=None):
    x, _ = self.attend(x)
    x = cat([part + 0 for part in x])
    return x
"""
)


@pytest.mark.parametrize(("now", "conflicts"), [("turn(x, axis=1)", 0), ("turn(x, axis=3)", 1)])
def test_a_default_that_upstream_passes_now_is_no_change(tmp_path: Path, now: str, conflicts: int) -> None:
    new = ROUTER.replace("turn(x)", now).replace("turn(q, axis=1)", "turn(q, axis=2)")
    assert len(reasons(tmp_path, new, ROUTER, LAYER)) == conflicts


@pytest.mark.parametrize(("was", "conflicts"), [("x, w = self.attend(x)", 0), ("x, w = self.other(x)", 1)])
def test_what_a_patch_works_on_may_be_unpacked_under_other_names(tmp_path: Path, was: str, conflicts: int) -> None:
    old = ROUTER.replace("x, _ = self.attend(x)\n        return x\n", f"{was}\n        return x, w\n")
    new = ROUTER.replace("        return x\n", "        return self.out(x)\n")
    text = LAYER.replace("x, _ = self.attend(x)", was).replace("    return x\n", "    return x, w\n")
    assert len(reasons(tmp_path, new, old, text)) == conflicts
