"""A class of a repository: found by path or by module, read and never imported."""

import sys
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.repositories.reference import find_reference, names_reference
from omni_kit.upstream.repositories.sampling import Sampling, samplings_of
from omni_kit.upstream.repositories.traits import profile
from omni_kit.upstream.subject import open_source

HERON = Path(__file__).parents[2] / "fixtures" / "repositories" / "heron"
LUMEN = Path(__file__).parents[3] / "reference_models" / "diffusers" / "_upstream" / "lumen"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def sampling_of(place: str) -> Sampling | None:
    found = samplings_of(find_reference(place))
    return found[0] if len(found) == 1 else None


def test_the_whole_repository_a_package_or_a_file_name_the_same_class() -> None:
    found = [find_reference(f"{HERON}{place}::HeronNet") for place in ("", "/heron", "/heron/nn/stack.py")]
    assert {one.cls.source.path for one in found} == {HERON / "heron" / "nn" / "stack.py"}
    assert {one.repository.root for one in found} == {HERON}


def test_a_file_may_only_import_the_class() -> None:
    assert find_reference(f"{HERON}/heron/nn/__init__.py::HeronNet").where == "heron/heron/nn/stack.py:67"


def test_what_a_dataclass_holds_is_what_the_constructor_takes() -> None:
    found = find_reference(f"{HERON}::HeronNet")
    assert found.settings is not None
    assert found.settings.argument == "cfg"
    assert found.arguments["width"].default == 640
    assert found.arguments["patch"].default == (2, 2)
    assert found.arguments["tags"].default == []


def test_everything_that_it_needs_is_found_each_after_what_it_needs() -> None:
    names = [one.name for one in find_reference(f"{HERON}::HeronNet").closure.definitions]
    assert names[-1] == "HeronNet"
    assert names.index("rotate_half") < names.index("rotary") < names.index("Mixer") < names.index("Layer")


def test_it_is_a_denoiser_by_the_step_that_it_is_told() -> None:
    profile = open_source(f"{HERON}::HeronNet").profile
    assert profile.kind is Kind.dit
    assert "'sigma'" in profile.kind_evidence
    assert profile.trait("foreign-import") is not None


def test_nothing_of_it_is_imported(tmp_path: Path) -> None:
    write(
        tmp_path,
        loud="import torch.nn as nn\nraise SystemExit\nclass Net(nn.Module):\n    def forward(self, x, t): ...\n",
    )
    before = set(sys.modules)
    assert open_source(f"{tmp_path}::Net").kind is Kind.dit
    assert "loud" not in set(sys.modules) - before


@pytest.mark.parametrize(("spelling", "text", "said"), [
    ("::Net", "class Net: ...", "not an nn.Module"),
    ("::Net", "from diffusers import DiffusionPipeline as P\nclass Net(P): ...", "a pipeline outside diffusers"),
    ("::Nett", "import torch\nclass Net(torch.nn.Module): ...", "did you mean Net?"),
    ("/m.py::Net", "import torch\nclass Net(torch.nn.Module): ...", "no forward"),
    ("/m.py::Net", "class Net(", "cannot read"),
    ("/no.py::Net", "", "does not exist"),
])  # fmt: skip
def test_bad_input_is_one_line(spelling: str, text: str, said: str, tmp_path: Path) -> None:
    write(tmp_path, m=text)
    with pytest.raises(BadInput) as caught:
        open_source(f"{tmp_path}{spelling}")
    assert said in f"{caught.value.message} {caught.value.hint}"
    assert "\n" not in caught.value.message


def test_a_base_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("from far_away.models import Base\nclass Net(Base):\n    pass\n")
    with pytest.raises(BadInput, match=r"Net derives from far_away\.models\.Base, which the repository does not"):
        find_reference(f"{tmp_path}/m.py::Net")


HELD = """import torch
from dataclasses import dataclass

@dataclass
class Given:
    latent: torch.Tensor
    {field}: torch.Tensor

class Net(torch.nn.Module):
    def forward(self, video: Given | None, audio: Given | None):
        return video.latent
"""


@pytest.mark.parametrize(("field", "said"), [("sigma", "video.sigma"), ("places", "no argument of forward")])
def test_a_time_inside_an_object_is_said(field: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(HELD.format(field=field))
    assert said in profile(find_reference(f"{tmp_path}/m.py::Net")).kind_evidence


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.ckpt").write_bytes(b"")
    with pytest.raises(BadInput, match="not a safetensors file"):
        open_source(f"{tmp_path / 'w.ckpt'}::Net")


def test_two_classes_of_one_name_want_the_file(tmp_path: Path) -> None:
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): ...\n"
    write(tmp_path, a=text, b=text)
    with pytest.raises(BadInput, match="has 2 classes"):
        find_reference(f"{tmp_path}::Net")
    assert find_reference(f"{tmp_path}/b.py::Net").cls.source.path.name == "b.py"


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    write(outside, m="import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): ...\n")
    write(inside, own="x = 1")
    (inside / "m.py").symlink_to(outside / "m.py")
    with pytest.raises(BadInput, match="no class 'Net'"):
        find_reference(f"{inside}::Net")


def test_other_sources_are_not_taken_for_references() -> None:
    assert names_reference("torch.nn.modules.linear:Linear")
    assert not any(map(names_reference, ["diffusers:FluxPipeline", "hf://a/b", "qwen3_moe", "/some/config.json"]))


def test_a_schedule_is_known_by_its_numbers() -> None:
    found = sampling_of(f"{LUMEN}::Lumen")
    assert found is not None
    assert found.forward is True
    assert found.schedule is not None
    assert found.schedule.shift == 3.0


def test_what_a_loop_is_given_is_told_by_use_and_by_name() -> None:
    found = sampling_of(f"{LUMEN}::Lumen")
    assert found is not None
    assert (found.module, found.function) == ("lumen.sampling", "sample")
    assert found.roles == {
        "model": "model", "noise": "noise", "text": "context", "against": "empty", "steps": "steps", "scale": "cfg"
    }  # fmt: skip


@pytest.mark.parametrize(("condition", "text", "against"), [
    ("context", "context=text", "empty=against"), ("given{seq}", "context={'seq': text}", "empty={'seq': against}"),
])  # fmt: skip
def test_a_text_is_an_entry_where_the_model_takes_a_mapping(condition: str, text: str, against: str) -> None:
    found = sampling_of(f"{LUMEN}::Lumen")
    assert found is not None
    _, call = found.called(condition)
    assert f"{text}, {against}," in call


def test_both_answers_may_come_of_one_call(tmp_path: Path) -> None:
    write(tmp_path, m=(
        "import torch\n\ndef generate(net, latent, prompt_emb, null_emb, *, num_steps=50, guidance_scale=7.5):\n"
        "    ts = torch.linspace(1, 0, num_steps + 1)\n    for i in range(num_steps):\n"
        "        both = torch.cat([latent, latent])\n"
        "        c, u = net(both, ts[i].repeat(len(both)), torch.cat([prompt_emb, null_emb])).chunk(2)\n"
        "        latent = latent + (ts[i + 1] - ts[i]) * (u + guidance_scale * (c - u))\n    return latent\n\n"
        "class Net(torch.nn.Module):\n    def forward(self, x, t): ...\n"
    ))  # fmt: skip
    found = sampling_of(f"{tmp_path}::Net")
    assert found is not None
    assert found.roles == {
        "model": "net", "noise": "latent", "text": "prompt_emb", "against": "null_emb", "steps": "num_steps",
        "scale": "guidance_scale",
    }  # fmt: skip


def test_a_loop_that_wants_something_else_has_no_roles(tmp_path: Path) -> None:
    write(tmp_path, m=(
        "import torch\n\ndef sample(model, x, steps, c, palette):\n"
        "    for a in torch.linspace(1, 0, steps):\n        v = model(x, a, c)\n        x = x - palette * v\n"
        "    return x\n\nclass Net(torch.nn.Module):\n    def forward(self, x, t): ...\n"
    ))  # fmt: skip
    found = sampling_of(f"{tmp_path}::Net")
    assert found is not None
    assert found.roles == {}


@pytest.mark.parametrize(("body", "shift"), [
    ("return torch.linspace(1, 0, n + 1)", 1.0),
    ("s = 1 - np.arange(n) / n\n    return 2.5 * s / (1 + 1.5 * s)", 2.5),
    ("s = [1 - i / n for i in range(n)] + [0.0]\n    mu = math.log(4.0)\n"
     "    return [math.exp(mu) / (math.exp(mu) + (1 / x - 1)) if x > 0 else 0.0 for x in s]", 4.0),
    ("return torch.linspace(1, 0, n + 1) ** 2", None),
    ("return torch.rand(n)", None),
])  # fmt: skip
def test_schedules_are_worked_out(body: str, shift: float | None, tmp_path: Path) -> None:
    write(tmp_path, m=(
        "import math\nimport numpy as np\nimport torch\n\ndef levels(n):\n    " + body + "\n\n"
        "def sample(model, x, n, c):\n    s = levels(n)\n    for a, b in zip(s[:-1], s[1:]):\n"
        "        v = model(x, a, c)\n        x = x + (b - a) * v\n    return x\n\n"
        "class Net(torch.nn.Module):\n    def forward(self, x, t): ...\n"
    ))  # fmt: skip
    found = sampling_of(f"{tmp_path}::Net")
    assert found is not None
    assert found.schedule is not None
    assert found.schedule.shift == (None if shift is None else pytest.approx(shift))


LOOP = (
    "def {name}({given}, x, steps, c):\n    for a in torch.linspace(1, 0, steps):\n        v = {call}\n"
    "        x = x - a * v\n    return x\n\n"
)
NETS = "class Net(torch.nn.Module):\n    def forward(self, x, t, c): ...\n\n" \
       "class Other(torch.nn.Module):\n    def forward(self, x, t): ...\n\n"  # fmt: skip


def loop(name: str, given: str = "net", call: str = "net(x, a, c)") -> str:
    return LOOP.format(name=name, given=given, call=call)


@pytest.mark.parametrize(("loops", "chosen"), [
    (loop("first", call="net(x, a, c, c)") + loop("second"), "second"),
    (loop("first", "net: Other", "net(x, a)") + loop("second", "net: Net"), "second"),
    (loop("first", "net: 'Other'"), None),
    (loop("first") + loop("second") + "net = Net()\nsecond(net, x, 4, c)\n", "second"),
    (loop("first") + loop("second"), None),
])  # fmt: skip
def test_the_loop_is_that_of_the_chosen_class(loops: str, chosen: str | None, tmp_path: Path) -> None:
    write(tmp_path, m=f"import torch\n\n{NETS}{loops}")
    found = sampling_of(f"{tmp_path}::Net")
    assert (found.function if found is not None else None) == chosen


LOSS = (
    "def loss(net, x, n, c):\n"
    "    total = torch.zeros(())\n"
    "    for a in torch.linspace(1, 0, n):\n"
    "        v = net(x, a, c)\n"
    "        total = total + 0.5 * v.mean()\n"
    "    return total\n\n"
)
DATA = (
    "def collate(tokenizer, texts, empty, n):\n"
    "    rows = []\n"
    "    for text in texts:\n"
    "        tokens = tokenizer(text, special=False)\n"
    "        tokens = tokens + [0] * (n - len(tokens))\n"
    "        rows.append(tokens)\n"
    "    return rows\n\n"
)
MADE = (
    "class Optimizer:\n"
    "    def __init__(self, groups, accumulation_steps, timers=None):\n"
    "        for group in groups:\n"
    "            group = timers(group, accumulation_steps)\n\n"
)


@pytest.mark.parametrize("other", [LOSS, DATA, MADE])
def test_a_loop_whose_outputs_do_not_come_back_does_not_sample(other: str, tmp_path: Path) -> None:
    for folder, more, functions in (("without", "", []), ("with", loop("first"), ["first"])):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, m=f"import torch\n\n{NETS}{other}{more}")
        assert [one.function for one in samplings_of(find_reference(f"{tmp_path / folder}::Net"))] == functions


def test_a_loop_that_begins_with_a_picture_samples_only_if_it_is_named(tmp_path: Path) -> None:
    write(tmp_path, m=f"import torch\n\n{NETS}{loop('inpaint')}{loop('first')}")
    assert [one.function for one in samplings_of(find_reference(f"{tmp_path}::Net"))] == ["first"]
    assert [one.function for one in samplings_of(find_reference(f"{tmp_path}::Net::inpaint"))] == ["inpaint"]


def test_a_name_of_two_loops_is_none(tmp_path: Path) -> None:
    write(tmp_path, m=f"import torch\n\n{NETS}{loop('first')}", n=f"import torch\n\nfrom m import Net\n{loop('first')}")
    with pytest.raises(BadInput, match="several functions are called 'first'"):
        samplings_of(find_reference(f"{tmp_path}/m.py::Net::first"))
    assert len(samplings_of(find_reference(f"{tmp_path}/m.py::Net::n.first"))) == 1


def test_which_of_several_loops_samples_can_be_said(tmp_path: Path) -> None:
    write(tmp_path, m=f"import torch\n\n{NETS}{loop('first')}{loop('second')}")
    assert [one.function for one in samplings_of(find_reference(f"{tmp_path}::Net"))] == ["first", "second"]
    found = sampling_of(f"{tmp_path}::Net::second")
    assert found is not None
    assert found.function == "second"
    with pytest.raises(BadInput, match="'third'"):
        sampling_of(f"{tmp_path}::Net::third")


@pytest.mark.parametrize(("body", "alone"), [
    ("return torch.linspace(1, 0, n + 1) ** 2", True),
    ("return torch.linspace(1, 0, n + 1) ** power", True),
    ("return [0.9 * (1 - i / n) ** 2 for i in range(n)]", True),
    ("return torch.linspace(0, 1, n + 1) ** 2", False),
    ("return torch.linspace(1, 0.1, n + 1) ** 2", False),
    ("return torch.linspace(1, 0, n)", False),
    ("return torch.rand(n)", False),
])  # fmt: skip
def test_a_schedule_that_tells_its_numbers_can_be_copied(body: str, alone: bool, tmp_path: Path) -> None:
    write(tmp_path, m=(
        f"import torch\n\ndef levels(n, power=3):\n    {body}\n\n"
        "def sample(model, x, n, c):\n    s = levels(n, power=2)\n    for a, b in zip(s[:-1], s[1:]):\n"
        "        v = model(x, a)\n        x = x + (b - a) * v\n    return x\n\n"
        "class Net(torch.nn.Module):\n    def forward(self, x, t): ...\n"
    ))  # fmt: skip
    found = sampling_of(f"{tmp_path}::Net")
    assert found is not None
    assert found.schedule is not None
    assert (found.schedule.made is not None) == alone
    assert dict(found.schedule.given) == {"power": "2"}


@pytest.mark.parametrize(("base", "known"), [("ModelMixin", True), ("ConfigMixin", False)])
def test_a_base_that_is_imported_from_one_of_two_places_is_known(base: str, known: bool, tmp_path: Path) -> None:
    places = [f"    from diffusers.{place} import {base}" for place in ("models.modeling_utils", "modeling_utils")]
    tried = "\n".join(["try:", places[0], "except:", places[1]])
    write(tmp_path, m=f"{tried}\n\nclass Net({base}):\n    def forward(self, x): ...\n")
    if known:
        assert find_reference(f"{tmp_path}/m.py::Net").class_name == "Net"
        return
    with pytest.raises(BadInput, match="not an nn"):
        find_reference(f"{tmp_path}/m.py::Net")
