"""Seeded changes of real models, merged by `patchgen upgrade`: right, needless conflicts and wrong ones, counted.

    python bench/seeded.py [--only WORDS] [--diff]

`bench/seeded` has what a framework patches in models of transformers (`patches.yaml`), and changes of upstream
with the right merged answers (`seeds.yaml`). Each change is written into a copy of the installed modeling file.
"""

import argparse
import ast
import difflib
import shutil
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from omni_kit.patchgen.source import read_module
from omni_kit.patchgen.upgrade.configs import upgrade_configs
from omni_kit.patchgen.upgrade.outcome import UpgradeResult
from omni_kit.pysource.library import find_library
from omni_kit.pysource.nodes import without_docstring

SEEDS = Path(__file__).with_suffix("")
CONFIG = """{imports}
from omni_kit.patchgen import PatchConfig

config = PatchConfig(source_module="{module}", target_file="patched_modeling.py")
config.add_import(
    "framework.kernels", names=["fused_norm", "fused_rotary", "fused_swiglu", "fused_experts", "fused_loss"]
)
config.add_import("framework.parallel", names=["gather_sequence", "slice_sequence", "reduce_mean", "replay"])
"""


def edited(text: str, edits: list[dict[str, str]]) -> str:
    """The text after the edits, each of which must apply."""
    for edit in edits:
        if edit["old"] not in text:
            raise SystemExit(f"this is not in the text: {edit['old']}")
        text = text.replace(edit["old"], edit["new"])
    return text


def config_of(modeling: Path, module: str, given: dict[str, Any]) -> str:
    """The patch config of a model: upstream's functions with the framework's edits."""
    parts = [CONFIG.format(imports=given["imports"], module=module)]
    source = read_module(module, modeling)
    for patch in given["patches"]:
        definition = source.get(patch["target"])
        assert definition is not None
        node = definition.node
        lines = dict(enumerate(source.text.splitlines(), 1))
        for inner in (one for one in ast.walk(node) if isinstance(one, (ast.FunctionDef, ast.ClassDef))):
            for docstring in inner.body[: len(inner.body) - len(without_docstring(inner.body))]:
                for line in range(docstring.lineno, (docstring.end_lineno or 0) + 1):
                    del lines[line]
        last = node.end_lineno or node.lineno
        text = textwrap.dedent("\n".join(lines[at] for at in range(node.lineno, last + 1) if at in lines))
        text = edited(text.replace(node.name, patch["name"], 1), patch["edits"])
        parts.append(f'@config.{patch["kind"]}("{patch["target"]}")\n{text}\n')
    return "\n\n".join([*parts, given.get("more", "")])


def plain(text: str, without: list[str]) -> str:
    """The code of a config without comments, layout and the patches of some targets; one import a name, sorted."""
    imports, others = [], []
    for one in ast.parse(text).body:
        by = [ast.unparse(decorator) for decorator in getattr(one, "decorator_list", ())]
        if isinstance(one, ast.ImportFrom):
            imports += [ast.unparse(ast.ImportFrom(one.module, [name], one.level)) for name in one.names]
        elif isinstance(one, ast.Import) or "add_import" in ast.dump(one):
            imports.append(ast.unparse(one))
        elif not any(f"'{target}'" in decorator for decorator in by for target in without):
            others.append(ast.unparse(one))
    return "\n".join([*sorted(imports), *others])


def linked(installed: Path, folder: Path, model: str) -> Path:
    """A copy of the installed library in which the files of one model may be changed; the others are links."""
    library = folder / "transformers"
    for made, given in ((library, installed), (library / "models", installed / "models")):
        made.mkdir()
        for one in given.iterdir():
            if one.name not in ("models", "__pycache__", model):
                (made / one.name).symlink_to(one)
    shutil.copytree(installed / "models" / model, library / "models" / model)
    return library


def merged(seed: dict[str, Any], before: str, installed: Path) -> tuple[UpgradeResult, str]:
    """The result of one seed's upgrade, and the config's text after it."""
    model = seed["model"]
    with tempfile.TemporaryDirectory() as place:
        library = linked(installed, Path(place), model)
        modeling = library / "models" / model / f"modeling_{model}.py"
        modeling.write_text(edited(modeling.read_text(encoding="utf-8"), seed["upstream"]), encoding="utf-8")
        config = Path(place) / f"{model}_patch_gen_config.py"
        config.write_text(before, encoding="utf-8")
        return upgrade_configs([config], installed, library), config.read_text(encoding="utf-8")


def judge(seed: dict[str, Any], given: dict[str, Any]) -> tuple[str, Iterator[str]]:
    """Merge one seed, and compare the result with the right answers.

    Returns:
        "right", "conflict" (a needless one), or "wrong"; and lines that show how the result differs.
    """
    installed, model = find_library("transformers").root, seed["model"]
    modeling = installed / "models" / model / f"modeling_{model}.py"
    before = config_of(modeling, f"transformers.models.{model}.modeling_{model}", given)
    result, after = merged(seed, before, installed)
    (config,) = result.configs
    conflict, dropped = (
        {one.target: one.reason for one in config.patches if one.status == status} for status in ("conflict", "dropped")
    )
    answers = [(seed.get("conflict", []), seed["patch"]), *([([], seed["or"])] if "or" in seed else [])]
    texts = [plain(edited(before, edits), seed.get("dropped", [])) for _, edits in answers]
    said = filter(None, [config.error, *(f"{target}: {why}" for target, why in conflict.items())])
    lines = [*said, *difflib.unified_diff(texts[0].splitlines(), plain(after, []).splitlines(), "right", "merged", n=1)]
    sides = zip(answers, texts, strict=True)
    if not config.error and set(dropped) == set(seed.get("dropped", [])):
        if any(set(conflict) == set(left) and plain(after, []) == text for (left, _), text in sides):
            return "right", iter(())
        if set(conflict) - set(answers[0][0]):
            return "conflict", iter(lines)
    return "wrong", iter(lines)


def main() -> None:
    """Print each seed that does not come out right, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORDS", help="only seeds with these words in model or name")
    parser.add_argument("--diff", action="store_true", help="show how the others differ from the right answer")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    patches, seeds = (yaml.safe_load((SEEDS / f"{name}.yaml").read_text("utf-8")) for name in ("patches", "seeds"))
    for seed in seeds:
        if options.only in f"{seed['model']}: {seed['name']}":
            kind, lines = judge(seed, patches[seed["model"]])
            counts[kind] += 1
            if kind != "right":
                print(f"{kind:8} {seed['model']}: {seed['name']}", flush=True)
                print(*(f"    {line.rstrip()}\n" for line in (lines if options.diff else ())), sep="", end="")
    print(f"{counts.total()} seeds: {counts['right']} right, {counts['conflict']} conflicts, {counts['wrong']} wrong")


if __name__ == "__main__":
    main()
