"""Rules about how patch configs are written: VEO409 to VEO413."""

import ast
import re
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import GENERATED, GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.generated import Generated, PatchConfigFile, upstream_function
from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import dotted
from omni_kit.targets.provenance import other_version
from omni_kit.targets.veomni.model_dir import ModelDir

_REGISTER = {"override_method", "replace_class", "replace_function", "modify_init"}
_COMMAND = re.compile(r"patchgen(?:\s+run)?\s+([\w./]+)")
_BASED = re.compile(r"^#\s+Based on:\s*transformers==([\w.]+)", re.MULTILINE)
_MARK = re.compile(r"^\s*#\s*-{2,}\s*(Patch\.[\w.]+)\s*-{2,}\s*$")
_OTHER = "omni-kit patchgen run qwen3_moe/qwen3_moe_gpu_patch_gen_config.py"
_NORM = """\


@config.override_method("OlmoeRMSNorm.forward"{description})
def olmoe_rms_norm_forward(self, hidden_states):
{body}    return nn.functional.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)
"""
_MARKED = "    # --- Patch.1 ---\n    # --- Patch.1 ---\n    # --- Patch.2 ---\n"
_FEATURES = """\
# Source: transformers.models.qwen2_vl.modeling_qwen2_vl
import torch
from transformers import PreTrainedModel


class Qwen2VLModel(PreTrainedModel):
    @accepts_precomputed_kwargs(modality="image")
    @can_return_tuple
    @auto_docstring
    def get_image_features(self, pixel_values, image_grid_thw=None, **kwargs):
        outputs = self.visual(pixel_values, grid_thw=image_grid_thw, **kwargs)
{image}        return outputs

    @accepts_precomputed_kwargs(modality="video")
    @can_return_tuple
    @auto_docstring
    def get_video_features(self, pixel_values_videos, video_grid_thw=None, **kwargs):
        outputs = self.visual(pixel_values_videos, grid_thw=video_grid_thw, **kwargs)
{video}        return outputs
"""
_SPLIT = """\
        lengths = ({kind}_grid_thw.prod(-1) // self.visual.spatial_merge_size**2).tolist()
        outputs.pooler_output = torch.split(outputs.pooler_output, lengths)
"""


def _features(*split: str) -> dict[str, str]:
    """Return the feature methods of a model; those for these kinds hand out one tensor for each."""
    bodies = {kind: _SPLIT.format(kind=kind) if kind in split else "" for kind in ("image", "video")}
    return {"generated/patched_modeling_qwen2_vl_gpu.py": _FEATURES.format(**bodies)}


class NoInitModification(Rule):
    """Use `override_method("<Class>.__init__")` in a patch config, not `modify_init`.

    Why: VeOmni's own generator lists `modify_init` as applied and generates nothing for it: the attribute is missing at
    the first forward. omni-kit's generator applies it, so one config gives two results.

    Fine when: only omni-kit runs the config; state that in an ignore comment.
    """

    id = "VEO409"
    name = "no-modify-init"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-06",)
    failure_modes = ("missing-self-attribute",)
    BAD = (
        {
            GPU_CONFIG: patch_config(
                '\n\n@config.modify_init("OlmoeRMSNorm")\ndef init(original, self, hidden_size, eps=1e-6):\n'
                + "    original(self, hidden_size, eps)\n    self.fused = True\n"
            )
        },
    )
    GOOD = (
        {
            GPU_CONFIG: patch_config(
                '\n\n@config.override_method("OlmoeRMSNorm.__init__", description="told apart from others")\n'
                + "def olmoe_rms_norm_init(self, hidden_size, eps=1e-5):\n    nn.Module.__init__(self)\n"
                + "    self.weight = nn.Parameter(torch.ones(hidden_size))\n    self.variance_epsilon = eps\n"
                + "    self.fused = True\n"
            )
        },
    )

    def check(self, patch_configs: list[PatchConfigFile]) -> Findings:
        for config in _present(patch_configs):
            for call, kind in _registrations(config):
                if kind == "modify_init":
                    message = "modify_init is dropped by VeOmni's own generator: override __init__ instead"
                    yield Finding(message, config.file.path, call.lineno)


class ConfigNamesItsCommand(Rule):
    """Give the command that regenerates this config in its docstring.

    Why: readers of the generated file look here for the command. The command of a copied config regenerates the other
    model, prints "unchanged", and leaves this file as it is.

    Fine when: the repository regenerates everything with one command.
    """

    id = "VEO410"
    name = "patch-config-names-its-own-command"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-PG-28", "VEO-PG-30")
    failure_modes = ("upstream-drift-body",)
    BAD = ({GPU_CONFIG: re.sub(r"omni-kit patchgen run [\w/.]+", _OTHER, patch_config())},)
    GOOD = ({GPU_CONFIG: patch_config()},)

    def check(self, patch_configs: list[PatchConfigFile]) -> Findings:
        for config in _present(patch_configs):
            tree = config.file.tree
            text = (ast.get_docstring(tree) if tree is not None else None) or ""
            named = {name.removesuffix(".py").rstrip(".").replace("/", ".") for name in _COMMAND.findall(text)}
            own = config.file.path.stem
            if not named:
                yield Finding("the docstring does not say how to regenerate", config.file.path, 1)
            elif not any(name.rpartition(".")[2] == own for name in named):
                wrong = sorted(named)[0]
                yield Finding(f"the docstring says how to regenerate {wrong}, not {own}", config.file.path, 1)


class PatchesSayWhy(Rule):
    """Give every patch a reason: a description, or a comment above or inside it; close its marks.

    Marks are the comments `# --- Patch.1 ---` around changed lines. Each opens and closes in the same function.

    Why: at the next transformers release someone has to decide which parts of the patch are still needed. Without a
    reason they keep everything or lose the fix. An unclosed mark counts upstream's lines as changed.

    Fine when: the function's name explains the patch.
    """

    id = "VEO411"
    name = "patches-say-why"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-PG-25", "VEO-PG-26", "VEO-PG-31")
    failure_modes = ("upstream-drift-body",)
    BAD = (
        {GPU_CONFIG: patch_config(_NORM.format(description="", body=""))},
        {GPU_CONFIG: patch_config(_NORM.format(description=', description="one kernel"', body=_MARKED))},
    )
    GOOD = (
        {GPU_CONFIG: patch_config(_NORM.format(description=', description="one kernel"', body=""))},
        {GPU_CONFIG: patch_config(_NORM.format(description="", body="    # one kernel in place of six\n"))},
    )

    def check(self, patch_configs: list[PatchConfigFile]) -> Findings:
        for config in _present(patch_configs):
            lines = config.file.text.splitlines()
            nodes: list[ast.FunctionDef | ast.ClassDef] = [*config.file.nodes(ast.FunctionDef)]
            nodes += config.file.nodes(ast.ClassDef)
            for node in nodes:
                patches = [d for d in node.decorator_list if isinstance(d, ast.Call) and _kind(d)]
                if patches and not _explained(patches, node, lines):
                    message = f"no description says why {ast.unparse(patches[0].args[0])} is patched"
                    yield Finding(message, config.file.path, node.lineno)
                for number, mark in _unpaired(node, lines) if patches else ():
                    yield Finding(f"the mark {mark} in {node.name} does not close", config.file.path, number)


class GeneratedForInstalled(Rule):
    """Generate files from the installed transformers.

    Why: the file is a patched copy of upstream's modeling code. With another release it calls helpers with another
    signature or meaning.

    Fine when: the model targets another release than the installed one; then check with that one.
    """

    id = "VEO412"
    name = "generated-for-installed-transformers"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-ENV-01",)
    failure_modes = ("upstream-drift-body",)
    BAD = (
        {
            GENERATED: "# Source: transformers.models.olmoe.modeling_olmoe\n# Based on: transformers==5.0.0\n",
        },
    )
    GOOD = ({GPU_CONFIG: patch_config()},)

    def check(self, model_dir: ModelDir, generated: list[Generated] | None = None) -> Findings:
        transformers = find_library("transformers")
        if why := other_version(model_dir.path, transformers):
            yield Finding(why, model_dir.path / "__init__.py", 1)
            return
        for item in generated or ():
            said = _BASED.search(item.file.text[:4000])
            if said is not None and said.group(1) != transformers.version:
                message = f"made from transformers {said.group(1)}; {transformers.version} is installed"
                line = item.file.text[: said.start()].count("\n") + 1
                yield Finding(message, item.file.path, line)


class FeaturesKeepTheirForm(Rule):
    """Return from `get_image_features` and similar overrides what upstream returns.

    Upstream returns one tensor for each image, from `torch.split`.

    Why: it is a public method. Callers outside the model, and later upstream code, index the result by image and get
    single rows of the first one.

    Fine when: every caller is in this file and the flat tensor is documented, to avoid a device synchronisation.
    """

    id = "VEO413"
    name = "feature-methods-keep-their-form"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-PG-41",)
    failure_modes = ("override-signature-drift",)
    example_of = "qwen2_vl"
    BAD = (_features("video"),)
    GOOD = (_features("image", "video"),)

    def check(self, generated: list[Generated]) -> Findings:
        judged = False
        for item in generated:
            for owner, function in item.patched:
                if not re.fullmatch(r"get_\w+_features", function.name):
                    continue
                judged = True
                upstream = upstream_function(item, owner, function.name)
                if upstream is not None and _splits(upstream) and not _splits(function):
                    message = f"{owner}.{function.name} returns one tensor for all; upstream's returns one for each"
                    yield Finding(message, item.file.path, function.lineno)
        if not judged:
            raise NotApplicable("no feature method is patched")


def _present(patch_configs: list[PatchConfigFile]) -> list[PatchConfigFile]:
    if not patch_configs:
        raise NotApplicable("the directory has no patch config")
    return patch_configs


def _kind(call: ast.Call) -> str:
    """Return the method of PatchConfig that a call calls; empty for any other call."""
    name = (dotted(call.func) or "").rpartition(".")[2]
    return name if name in _REGISTER and call.args else ""


def _registrations(config: PatchConfigFile) -> Iterator[tuple[ast.Call, str]]:
    for call in config.file.nodes(ast.Call):
        if kind := _kind(call):
            yield call, kind


def _explained(patches: list[ast.Call], node: ast.FunctionDef | ast.ClassDef, lines: list[str]) -> bool:
    """Return whether a patch has a description, a comment above or inside, or a docstring."""
    if any(keyword.arg == "description" for patch in patches for keyword in patch.keywords):
        return True
    first = node.decorator_list[0].lineno
    above = lines[first - 2].strip() if first > 1 else ""
    inside = lines[node.lineno - 1 : node.end_lineno]
    comments = [line for line in inside if line.strip().startswith("#") and not _MARK.match(line)]
    return above.startswith("#") or bool(comments) or ast.get_docstring(node) is not None


def _unpaired(node: ast.FunctionDef | ast.ClassDef, lines: list[str]) -> Iterator[tuple[int, str]]:
    """(line, mark) of marks that stand there an odd number of times; none if no mark of the function closes."""
    seen: dict[str, list[int]] = {}
    for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        if match := _MARK.match(lines[number - 1]):
            seen.setdefault(match.group(1), []).append(number)
    if any(len(numbers) % 2 == 0 for numbers in seen.values()):
        yield from ((numbers[-1], mark) for mark, numbers in seen.items() if len(numbers) % 2)


def _splits(function: ast.FunctionDef) -> bool:
    called = (node.func for node in walked(function) if isinstance(node, ast.Call))
    return any(isinstance(name, ast.Attribute) and name.attr in {"split", "tensor_split", "unbind"} for name in called)
