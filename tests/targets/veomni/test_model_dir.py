"""Which directories are VeOmni models, what they register, and how they are imported."""

import importlib.util
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.targets.veomni.model_dir import find_model_dir, place_of

IMPORT = "from veomni.models.loader import MODELING_REGISTRY\n"


def package(root: Path, name: str, text: str) -> Path:
    directory = root / name
    directory.mkdir(parents=True)
    (directory / "__init__.py").write_text(text, encoding="utf-8")
    return directory


@pytest.mark.parametrize(
    ("text", "registered"),
    [
        (IMPORT + '@MODELING_REGISTRY.register("olmoe")\ndef make(architecture): ...\n', {"olmoe": 2}),
        (IMPORT + 'MODELING_REGISTRY.register("olmoe", make)\n', {"olmoe": 2}),
        (IMPORT + 'MODELING_REGISTRY.register(key="olmoe", cls_or_func=make)\n', {"olmoe": 2}),
        (IMPORT + '\nMODELING_REGISTRY["olmoe"] = make\n', {"olmoe": 3}),
        ("from veomni.models.loader import MODELING_REGISTRY as R\nR['olmoe'] = make\n", {"olmoe": 2}),
        ("from veomni.models import loader\nloader.MODELING_REGISTRY['olmoe'] = make\n", {"olmoe": 2}),
        (IMPORT + "REG = MODELING_REGISTRY\nREG['olmoe'] = make\n", {"olmoe": 3}),
        (IMPORT + 'KEY = "olmoe"\nMODELING_REGISTRY[KEY] = make\n', {"olmoe": 3}),
        (IMPORT + 'KEY: str = "olmoe"\nMODELING_REGISTRY[KEY] = make\n', {"olmoe": 3}),
        (IMPORT + 'for key in ("a", "b"):\n    MODELING_REGISTRY[key] = make\n', {"a": 3, "b": 3}),
        (IMPORT + 'if True:\n    MODELING_REGISTRY["olmoe"] = make\n', {"olmoe": 3}),
        (IMPORT + 'def install():\n    MODELING_REGISTRY["olmoe"] = make\n', {"olmoe": 3}),
        (IMPORT + 'MODELING_REGISTRY["b"] = make\nMODELING_REGISTRY["a"] = make\n', {"b": 2, "a": 3}),
        (
            IMPORT
            + '@MODELING_REGISTRY.register("x")\n@MODELING_REGISTRY.register("y")\ndef make(architecture): ...\n',
            {"x": 2, "y": 3},
        ),
    ],
)
def test_every_form_of_registration_is_read(text: str, registered: dict[str, int], tmp_path: Path) -> None:
    found = find_model_dir(package(tmp_path, "olmoe_plugin", text))

    assert dict(found.registered) == registered
    assert list(found.registered) == list(registered)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'from veomni.models.loader import MODEL_CONFIG_REGISTRY\nMODEL_CONFIG_REGISTRY["olmoe"] = make\n',
        'import atexit\natexit.register("olmoe")\n',
        'OTHER = {}\nOTHER["olmoe"] = make\n',
        IMPORT + "MODELING_REGISTRY.valid_keys()\n",
        IMPORT + '# MODELING_REGISTRY["olmoe"] = make\n',
    ],
)
def test_what_registers_no_model_is_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="registers nothing with MODELING_REGISTRY"):
        find_model_dir(package(tmp_path, "olmoe_plugin", text))


def test_a_plugin_is_imported_from_the_directory_above_it(tmp_path: Path) -> None:
    path = package(tmp_path, "olmoe_plugin", IMPORT + 'MODELING_REGISTRY["olmoe"] = make\n')

    found = find_model_dir(path)

    assert (found.style, found.import_name, found.sys_path) == ("plugin", "olmoe_plugin", tmp_path)
    assert found.path == path


def test_a_plugin_inside_a_package_is_imported_through_it(tmp_path: Path) -> None:
    package(tmp_path, "company", "")
    path = package(tmp_path / "company", "olmoe", IMPORT + 'MODELING_REGISTRY["olmoe"] = make\n')

    found = find_model_dir(path)

    assert (found.import_name, found.sys_path) == ("company.olmoe", tmp_path)


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "olmoe_plugin", IMPORT + 'MODELING_REGISTRY["olmoe"] = make\n')
    monkeypatch.chdir(tmp_path)

    assert find_model_dir(Path("olmoe_plugin")).path == tmp_path / "olmoe_plugin"


def test_veomnis_own_directories_are_in_tree() -> None:
    spec = importlib.util.find_spec("veomni")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent

    found = find_model_dir(root / "models" / "transformers" / "qwen3_moe")

    assert (found.style, found.import_name) == ("in-tree", "veomni.models.transformers.qwen3_moe")
    assert found.sys_path == root.parent
    line = (found.path / "__init__.py").read_text(encoding="utf-8").splitlines()[found.registered["qwen3_moe"] - 1]
    assert line == '@MODELING_REGISTRY.register("qwen3_moe")'


def test_two_model_types_of_one_directory_are_both_found() -> None:
    spec = importlib.util.find_spec("veomni")
    assert spec is not None
    assert spec.origin is not None

    found = find_model_dir(Path(spec.origin).parent / "models" / "transformers" / "qwen3_5_moe")

    assert list(found.registered) == ["qwen3_5_moe", "qwen3_5_moe_text"]


def test_a_checkout_is_in_tree_as_an_installation_is(tmp_path: Path) -> None:
    for part in ("veomni", "veomni/models", "veomni/models/transformers"):
        package(tmp_path, part, "")
    text = "from ...loader import MODELING_REGISTRY\n" + 'MODELING_REGISTRY.register("olmoe", make)\n'
    path = package(tmp_path, "veomni/models/transformers/olmoe", text)

    found = find_model_dir(path)

    assert (found.style, found.import_name) == ("in-tree", "veomni.models.transformers.olmoe")
    assert found.sys_path == tmp_path


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere does not exist"):
        find_model_dir(tmp_path / "nowhere")


def test_a_file_is_no_model_directory(tmp_path: Path) -> None:
    file = package(tmp_path, "olmoe_plugin", "") / "__init__.py"

    with pytest.raises(BadInput, match="is not a directory"):
        find_model_dir(file)


def test_a_directory_without_init_is_no_package(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no __init__\.py"):
        find_model_dir(tmp_path)


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"__init__\.py:2 is not valid Python"):
        find_model_dir(package(tmp_path, "olmoe_plugin", "x = 1\ny = (\n"))


def test_bytes_that_are_no_text_are_said_to_be_unreadable(tmp_path: Path) -> None:
    path = package(tmp_path, "olmoe_plugin", "")
    (path / "__init__.py").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(BadInput, match="encoding"):
        find_model_dir(path)


def test_a_name_that_python_cannot_import_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'olmoe-plugin' is not a Python identifier"):
        find_model_dir(package(tmp_path, "olmoe-plugin", IMPORT + 'MODELING_REGISTRY["olmoe"] = make\n'))


def test_every_error_is_one_line_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        find_model_dir(tmp_path)

    assert "\n" not in caught.value.message
    assert "MODELING_REGISTRY" in caught.value.hint


def test_a_key_is_placed_in_the_package_that_registers_it(tmp_path: Path) -> None:
    path = package(tmp_path, "wan", "from . import wan_condition, wan_transformer\n")
    for name, key in (("wan_condition", "WanCondition"), ("wan_transformer", "Wan")):
        package(path, name, IMPORT + f'MODELING_REGISTRY["{key}"] = make\n')
    found = find_model_dir(path)

    assert place_of(found, "Wan")[0] == path / "wan_transformer" / "__init__.py"
    assert place_of(found, "WanCondition") == (path / "wan_condition" / "__init__.py", found.registered["WanCondition"])
    assert place_of(found, "another") == (path / "__init__.py", 1)
