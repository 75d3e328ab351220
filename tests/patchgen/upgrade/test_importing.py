"""The imports of a config, and what it adds to the generated file, after upstream moved things."""

from pathlib import Path

from omni_kit.patchgen.upgrade.configs import upgrade_configs

from .libraries import write_libraries

MODELING = """
from tiny.things import Other, Thing


class Model:
    def forward(self, x: Thing, y: Other):
        return x.first + y
"""

CONFIG = '''"""What changes."""

from tiny.things import Other, Thing

from omni_kit.patchgen import PatchConfig

config = PatchConfig(source_module="tiny.modeling", target_file="patched_modeling.py")
config.add_import("tiny.things", names=["Thing"])


@config.override_method("Model.forward")
def forward(self, x: Thing, y: Other):
    return x.first + y + 1
'''


def upgraded(folder: Path, modeling: str, home: str) -> str:
    """The config after an upgrade to a library with another modeling file, whose classes are in `home`."""
    things = "class Thing: ...\n\n\nclass Other: ...\n"
    libraries = write_libraries(
        folder, "tiny", {"modeling": MODELING, "things": things}, {"modeling": modeling, home: things}
    )
    config = folder / "tiny_patch_gen_config.py"
    config.write_text(CONFIG, encoding="utf-8")
    (done,) = upgrade_configs([config], *libraries, "tiny").configs
    assert not done.error
    return config.read_text(encoding="utf-8")


def test_a_module_that_moved_is_followed(tmp_path: Path) -> None:
    wanted = CONFIG.replace("tiny.things", "tiny.parts")
    assert upgraded(tmp_path, MODELING.replace("things", "parts"), "parts") == wanted


def test_an_import_that_nothing_uses_any_more_goes(tmp_path: Path) -> None:
    wanted = CONFIG.replace("import Other, Thing", "import Thing").replace("y: Other", "y: int")
    assert upgraded(tmp_path, MODELING.replace("y: Other", "y: int"), "things") == wanted


def test_imports_that_still_serve_stay(tmp_path: Path) -> None:
    wanted = CONFIG.replace("y: Other", "y: Other = None")
    assert upgraded(tmp_path, MODELING.replace("y: Other", "y: Other = None"), "things") == wanted
