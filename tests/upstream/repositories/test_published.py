"""What a repository says that its model is made of."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import find_reference

MODEL = """
from torch import nn


class Inner(nn.Module):
    def __init__(self, dim, qk_norm=False):
        super().__init__()


class Lantern(nn.Module):
    def __init__(self, depth=2, hidden_size=16, heads=2{more}):
        super().__init__()
        self.inner = Inner(hidden_size{handed})

    def forward(self, x, t):
        return x
{factory}
"""
FACTORY = "\n\ndef Lantern_XL(**kwargs):\n    return Lantern(depth=28, hidden_size=1152, **kwargs)\n"


def written(place: Path, more: str = "", handed: str = "", factory: str = "") -> str:
    (place / "model.py").write_text(MODEL.format(more=more, handed=handed, factory=factory))
    return f"{place}::Lantern"


def test_a_factory_says_it(tmp_path: Path) -> None:
    found = find_reference(written(tmp_path, factory=FACTORY)).published
    assert found is not None
    assert found.values == {"depth": 28, "hidden_size": 1152}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "model:\n  params:\n    depth: 28\n    hidden_size: 1152\n"),
        ("config.json", '{"model": {"depth": 28, "hidden_size": 1152, "type": "lantern"}}'),
        (
            "train.py",
            'parser.add_argument("--depth", default=28)\nparser.add_argument("--hidden-size", default=1152)\n',
        ),
        ("presets.py", 'XL = {"depth": 28, "hidden_size": 1152}\n'),
        ("presets.py", 'config.nnet = d(name="lantern", depth=28, hidden_size=1152, heads=config.get_ref("heads"))\n'),
    ],
)
def test_a_config_says_it(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = find_reference(written(tmp_path)).published
    assert found is not None
    assert (found.values["depth"], found.values["hidden_size"]) == (28, 1152)


@pytest.mark.parametrize(("key", "text", "depth"), [
    ("target", "models.other.Lantern", 28), ("_target_", "Lantern", 28), ("target", "models.Lanterns", 4),
    ("comment", "Lantern", 4),
])  # fmt: skip
def test_a_config_that_names_the_class_comes_before_one_with_more_arguments(
    key: str, text: str, depth: int, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("made = dict(depth=4, hidden_size=8, heads=1)\n")
    (tmp_path / "b.yaml").write_text(f"net:\n  {key}: {text}\n  params:\n    depth: 28\n    hidden_size: 1152\n")
    found = find_reference(written(tmp_path)).published
    assert found is not None
    assert found.values["depth"] == depth


def test_a_function_that_makes_the_class_says_its_options_by_other_names(tmp_path: Path) -> None:
    defaults = "def defaults():\n    return dict(depth=28, channels=1152, rate=0.1)\n"
    makes = "\n\ndef make(depth, channels, rate):\n    return Lantern(depth, hidden_size=channels)\n"
    (tmp_path / "script.py").write_text(defaults + makes)
    found = find_reference(written(tmp_path, more=", rate=0.0")).published
    assert found is not None
    assert found.values == {"depth": 28, "hidden_size": 1152, "rate": 0.1}


def test_a_config_of_something_else_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("depth: 3\nlr: 0.1\nbatch: 8\nsteps: 100\nworkers: 4\n")
    assert find_reference(written(tmp_path)).published is None


def test_what_a_constructor_hands_on_is_an_argument_too(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("depth: 28\nhidden_size: 1152\nqk_norm: true\nlr: 0.1\n")
    given = find_reference(written(tmp_path, more=", **kwargs", handed=", **kwargs"))
    assert [*given.handed_on] == ["qk_norm"]
    assert given.arguments["qk_norm"].default is True


OPTIONS = """
parser.add_argument("--qk-norm", action=argparse.BooleanOptionalAction, default=False)
parser.add_argument("--mode", choices=["fused", "plain"], default="fused")
"""


@pytest.mark.parametrize(("read", "found"), [
    ('if kwargs["qk_norm"]:', {"qk_norm": False}),
    ('if kwargs.get("qk_norm", True):', {}),
])  # fmt: skip
def test_a_key_that_a_constructor_cannot_do_without_comes_from_a_command_line(
    tmp_path: Path, read: str, found: dict[str, object]
) -> None:
    text = MODEL.format(more=", **kwargs", handed=", **kwargs", factory="")
    text = text.replace("dim, qk_norm=False):\n", f"dim, **kwargs):\n        {read}\n            pass\n")
    (tmp_path / "model.py").write_text(text)
    (tmp_path / "train.py").write_text(OPTIONS)
    given = find_reference(f"{tmp_path}::Lantern").handed_on
    assert {name: one.default for name, one in given.items()} == found


@pytest.mark.parametrize(("calls", "found"), [
    ("block_kwargs = {'qk_norm': True, 'fused': False}\nmodel = models[name](**block_kwargs)\n", {"qk_norm": True}),
    ("", {"qk_norm": None}),
])  # fmt: skip
def test_a_key_that_is_required_comes_from_a_mapping_or_is_null(
    tmp_path: Path, calls: str, found: dict[str, object]
) -> None:
    text = MODEL.format(more=", **kwargs", handed=", **kwargs", factory="")
    text = text.replace("dim, qk_norm=False):\n", 'dim, **kwargs):\n        kwargs["qk_norm"]\n')
    (tmp_path / "model.py").write_text(text)
    (tmp_path / "evaluate.py").write_text(calls)
    given = find_reference(f"{tmp_path}::Lantern").handed_on
    assert {name: one.default for name, one in given.items()} == found


def test_the_choices_of_a_command_line_annotate_what_a_namespace_holds(tmp_path: Path) -> None:
    text = MODEL.format(more="", handed="", factory="").replace("self, depth=2, hidden_size=16, heads=2", "self, args")
    text = text.replace("Inner(hidden_size)", "Inner(args.qk_norm)\n        self.mode = args.mode")
    (tmp_path / "model.py").write_text(text)
    (tmp_path / "train.py").write_text(OPTIONS)
    assert find_reference(f"{tmp_path}::Lantern").arguments["mode"].annotation == "Literal['fused', 'plain']"


@pytest.mark.parametrize(("nargs", "command", "known"), [
    (', nargs="+"', "python train.py --qk-norm 1 2 --mode plain\n", [1, 2]),
    ("", "python train.py --qk_norm=0.5 \\\n", 0.5),
    ("", "| --qk-norm | how much |\n", None),
])  # fmt: skip
def test_an_option_without_a_default_is_what_the_documentation_passes(
    nargs: str, command: str, known: object, tmp_path: Path
) -> None:
    text = MODEL.format(more="", handed="", factory="").replace("self, depth=2, hidden_size=16, heads=2", "self, args")
    (tmp_path / "model.py").write_text(text.replace("Inner(hidden_size)", "Inner(args.qk_norm, args.mode)"))
    (tmp_path / "train.py").write_text(
        OPTIONS.replace("action=argparse.BooleanOptionalAction, default=False", f"type=int{nargs}")
    )
    (tmp_path / "readme.md").write_text(command)
    assert find_reference(f"{tmp_path}::Lantern").arguments["qk_norm"].default == known


def test_tags_of_yaml_do_not_hide_a_config(tmp_path: Path) -> None:
    tagged = "betas: !!python/tuple [0.9, 0.96]\noptimizer: !made.Adam {lr: 0.1}\nname: !label best\n"
    (tmp_path / "config.yaml").write_text(f"{tagged}model:\n  depth: 28\n  hidden_size: !size 1152\n")
    found = find_reference(written(tmp_path)).published
    assert found is not None
    assert found.values == {"depth": 28, "hidden_size": 1152}


PARAMS = "class Params(dict):\n    pass\n\n\nparams = Params({own}{more})\n"


@pytest.mark.parametrize(("own", "known"), [
    ("depth=7, hidden_size=64, heads=8, ", {"depth": 7, "hidden_size": 64, "heads": 8}), ("depth=7, ", None)
])  # fmt: skip
def test_settings_among_others_count_if_they_are_most_of_the_arguments(
    own: str, known: dict[str, int] | None, tmp_path: Path
) -> None:
    more = "batch_size=16, learning_rate=2e-4, sample_rate=22050, n_fft=1024, hop=256, seed=0, steps=9, clip=1.0"
    (tmp_path / "params.py").write_text(PARAMS.format(own=own, more=more))
    found = find_reference(written(tmp_path)).published
    assert (found.values if found is not None else None) == known


def test_numbers_are_worked_out(tmp_path: Path) -> None:
    own = "depth=3 + 4, hidden_size=np.linspace(16, 64, 4).tolist(), heads=chosen(), "
    (tmp_path / "params.py").write_text("import numpy as np\n\n" + PARAMS.format(own=own, more="qk_norm=True"))
    found = find_reference(written(tmp_path, ", qk_norm=False")).published
    assert found is not None
    assert found.values == {"depth": 7, "hidden_size": [16.0, 32.0, 48.0, 64.0], "qk_norm": True}


BASE = """
def get_base():
    config = ConfigDict()
    config.model = model = ConfigDict()
    model.depth = 12
    model.heads = 16
    return config
"""
SET = """
from base import get_base


def get_config():
    config = get_base()
    model = config.model
    model.depth = 28
    model.hidden_size = 1152
    model.name = compute()
    return config
"""


def test_fields_that_are_set_say_it_over_those_of_the_config_that_they_begin_with(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "large.py").write_text(SET)
    found = find_reference(written(tmp_path)).published
    assert found is not None
    assert found.values == {"depth": 28, "hidden_size": 1152, "heads": 16}


def test_fields_that_others_set_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(SET.replace("depth", "steps").replace("hidden_size", "lr"))
    assert find_reference(written(tmp_path)).published is None


def test_of_equal_configs_that_of_another_class_of_the_file_comes_last(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"depth": 9, "hidden_size": 64, "qk_norm": true, "note": 1}')
    (tmp_path / "b.json").write_text('{"depth": 28, "hidden_size": 1152, "name": "lantern", "seed": 1}')
    found = find_reference(written(tmp_path)).published
    assert found is not None
    assert found.values["depth"] == 28
