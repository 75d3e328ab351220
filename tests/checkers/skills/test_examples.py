"""Every rule about skills: its BAD examples are found, its GOOD ones pass all rules, and so do variants of both."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import omni_kit.cli  # noqa: F401 - its commands register themselves
from omni_checkers import Rule, all_rules
from omni_checkers.engine.registry import SKILLS
from omni_checkers.skills import check_skills
from omni_kit.cli.tree import command_tree

RULES = [rule for rule in all_rules() if rule.target == SKILLS]
BAD = [(rule, index) for rule in RULES for index in range(len(rule.BAD))]
GOOD = [(rule, index) for rule in RULES for index in range(len(rule.GOOD))]
HEAD = "---\nname: example\ndescription: Adds two numbers. Use when asked for a sum.\n---\n# Example\n\n"
TREE = {"omni-kit": command_tree()}


def found(place: Path, files: Mapping[str, str], checkout: Path | None = None) -> set[str]:
    """The rules that fire on a skill called `example`."""
    for name, text in files.items():
        path = (place / "example" / name).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {one.rule for one in check_skills([place / "example"], known=TREE, checkout=checkout).findings}


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of this environment come first, as in an activated one: what a shim leads to is not known."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)


@pytest.mark.parametrize(("rule", "index"), BAD, ids=lambda value: getattr(value, "id", value))
def test_a_bad_example_is_found(rule: type[Rule], index: int, tmp_path: Path) -> None:
    assert rule.id in found(tmp_path, rule.BAD[index])


@pytest.mark.parametrize(("rule", "index"), GOOD, ids=lambda value: getattr(value, "id", value))
def test_a_good_example_passes_all_rules(rule: type[Rule], index: int, tmp_path: Path) -> None:
    assert found(tmp_path, rule.GOOD[index]) == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_is_explained_and_has_both_examples(rule: type[Rule]) -> None:
    said = rule.documentation()
    assert rule.BAD
    assert rule.GOOD
    assert said.summary.endswith(".")
    assert said.why
    assert said.fine_when


BROKEN = {
    "a command in a table": ("SKL401", "| step | command |\n|---|---|\n| 1 | `omni-kit flyaway olmoe` |\n"),
    "a command behind a pipe": ("SKL401", "```sh\ncd x && omni-kit inspekt olmoe | head\n```\n"),
    "a command in an indented block": ("SKL401", "Run\n\n    omni-kit patchgen runn x.py\n"),
    "a command of another program": ("SKL401", "```bash\npip instal torch\n```\n"),
    "a flag of another program": ("SKL402", "```bash\npip install --no-dependencies torch\n```\n"),
    "a flag on the next line": ("SKL402", "```bash\nomni-kit parity plugins/olmoe \\\n  --levls forward\n```\n"),
    "a flag of another command": ("SKL402", "```console\n$ omni-kit inspect olmoe --prove\n```\n"),
    "a short flag": ("SKL402", "```bash\nomni-kit check -z plugins\n```\n"),
    "an import in brackets": (
        "SKL501", "```python\nfrom transformers import (\n    AutoModel,\n    AutoModelForNo,\n)\n```\n"),
    "an import of a class that is lazy": ("SKL501", "```python\nfrom diffusers import FluxPipelin\n```\n"),
    "an import in a function": ("SKL501", "```py\ndef f():\n    from json import dumpz\n```\n"),
    "an attribute by another name": ("SKL502", "```python\nimport torch.nn as nn\n\nnn.Linearr(1, 2)\n```\n"),
    "an attribute of an imported class": (
        "SKL502", "```python\nfrom diffusers import ModelMixin as M\n\nM.from_pretrain('x')\n```\n"),
    "a script that a command runs": ("SKL201", "```bash\npython scripts/prepare.py --all\n```\n"),
    "a page that is named in the text": ("SKL201", "When it fails, read `references/failures.md`.\n"),
    "a picture": ("SKL201", "![a picture](assets/way.png)\n"),
    "a sibling of a table": ("SKL204", "| you want | skill |\n|---|---|\n| more | `example-more` |\n"),
    "a sibling in a path": ("SKL204", "It is in `.claude/skills/other-skill/SKILL.md`.\n"),
    "python in a list": ("SKL301", "- First\n\n  ```python\n  def f(:\n      pass\n  ```\n"),
    "shell": ("SKL301", "```bash\nfor x in a b; do echo $x\n```\n"),
    "json": ("SKL301", '```json\n{"a": 1 "b": 2}\n```\n'),
    "a path of a home": ("SKL203", "The weights are in `/home/anna/weights`.\n"),
    "a path of Windows": ("SKL203", "The weights are in `C:\\Users\\anna\\weights`.\n"),
    "a file at the root": ("SKL203", "```bash\ncat /opt/tools/list.txt\n```\n"),
    "a pin with an extra": ("SKL503", "```bash\npip install 'huggingface-hub[cli]==0.1.0'\n```\n"),
    "a version in the text": ("SKL503", "This was written for transformers 4.30.2.\n"),
    "a link to the outside": ("SKL202", "See [the guide](../../docs/guide.md).\n"),
}  # fmt: skip
FINE = {
    "placeholders": "```bash\nomni-kit inspect <model> --format json\nomni-kit check PATH ...\n```\n",
    "a sentence about the program": "What `omni-kit` says counts; `omni-kit patchgen run|check` both say it.\n",
    "a remark": "```bash\nomni-kit check plugins  # --flies is no flag\n```\n",
    "a text between marks": "```bash\ncat > x.sh <<'EOF'\nomni-kit fly\nEOF\n```\n",
    "a program that is not there": "```bash\nno-such-program fly --away\n```\n",
    "flags of a script": "```bash\ntorchrun --nproc-per-node 2 train.py --flies\n```\n",
    "a module to be written": "```python\nfrom transformers.models.my_model import MyModel\n```\n",
    "an import that may fail":
        "```python\ntry:\n    from json import fast\nexcept ImportError:\n    fast = None\n```\n",
    "a package that is not there": "```python\nimport no_such_package\n\nno_such_package.x\n```\n",
    "a local name": "```python\nimport json\n\ndef f(json):\n    return json.nothing\n```\n",
    "an attribute of an enumeration": "```python\nfrom enum import Enum\n\nEnum.mro\n```\n",
    "more arguments": "```python\nprint(1, sep='', ...)\n```\n",
    "a name of a file": "Write `config.json` and `model_index.json`.\n",
    "a route": "`POST /v1/images/generations/new` answers.\n",
    "a folder of every machine": "```bash\nls /tmp/omni-kit/x > /dev/null\n```\n",
    "a version that is a bound": "It needs transformers 5.1.0 or later.\n",
    "an anchor": "See [above](#example) and [the site](https://example.com/x.md).\n",
    "another block": "```mermaid\ngraph TD\n```\n\n```text\n{not json\n```\n",
    "words with hyphens": "It is about `mixture-of-experts` and `half-split`.\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_variant_is_found(name: str, tmp_path: Path) -> None:
    rule, text = BROKEN[name]
    assert found(tmp_path, {"SKILL.md": HEAD + text}) == {rule}


@pytest.mark.parametrize("name", FINE)
def test_a_fine_variant_is_quiet(name: str, tmp_path: Path) -> None:
    assert found(tmp_path, {"SKILL.md": HEAD + FINE[name]}) == set()


def test_a_checkout_says_which_paths_and_targets_there_are(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "src" / "package").mkdir(parents=True)
    (checkout / "src" / "package" / "loader.py").write_text("def load(): ...\n")
    (checkout / "Makefile").write_text("all: one\none:\n\ttrue\n")
    text = "`src/package/loader.py` and `package/loader.py` are there.\n\n```bash\nmake one\n```\n"
    assert found(tmp_path / "a", {"SKILL.md": HEAD + text}, checkout=checkout) == set()
    dead = "`src/package/gone.py` and `other/gone.py` are not there.\n"
    assert found(tmp_path / "b", {"SKILL.md": HEAD + dead}, checkout=checkout) == {"SKL205"}
    assert found(tmp_path / "c", {"SKILL.md": f"{HEAD}```bash\nmake two\n```\n"}, checkout=checkout) == {"SKL401"}
    code = "```python\nfrom package.loader import load, unload\n```\n"
    assert found(tmp_path / "d", {"SKILL.md": HEAD + code}, checkout=checkout) == {"SKL501"}
