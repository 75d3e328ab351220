"""Rules about what only a run can tell: VEO901 to VEO907."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import REGISTER
from omni_checkers.veomni.facts.registry import MODELING, Registration
from omni_kit.counting import counted
from omni_kit.pysource.library import Library
from omni_kit.upstream.transformers.configs import model_types

Imported = Mapping[str, Any]
_CONVERTER = "staticmethod(create_olmoe_checkpoint_tensor_converter)"
_GOOD = {"__init__.py": REGISTER}


def _with(statement: str) -> dict[str, str]:
    """The register function with a statement before it returns."""
    return {"__init__.py": REGISTER.replace("    return ", f"    {statement}\n    return ")}


def _hook(value: str) -> dict[str, str]:
    return _with(f"OlmoeForCausalLM.get_position_id_func = lambda self: {value}")


_LORA = "_convert_lora_targets_to_parameters"


def _adapted(pattern: str) -> dict[str, str]:
    """The register function of a model whose experts can be adapted by this name."""
    hook = f"lambda model, names, patterns: ([], [*patterns, '*.mlp.experts.{pattern}'])"
    return _with(f"OlmoeForCausalLM.{_LORA} = OlmoeModel.{_LORA} = staticmethod({hook})")


class PackageImports(Rule):
    """The package can be imported beside VeOmni, and registers its keys.

    Why: nothing of the model can be used.

    Fine when: the model needs a package, or a device, that is not here; a package that is missing altogether is said,
    and is no finding.
    """

    id = "VEO901"
    name = "package-imports"
    target = "veomni"
    level = "import"
    requires = ("torch", "veomni")
    obligations = ("VEO-REG-06", "VEO-PG-29", "VEO-PG-09", "VEO-PG-44", "VEO-REG-17")
    failure_modes = ("removed-upstream-import", "uncompilable-file")
    BAD = ({"__init__.py": "import json.no_such_module\n" + _GOOD["__init__.py"]},)
    GOOD = (_GOOD,)

    def check(self, imported: Imported, path: Path) -> Findings:
        _excuse(imported)
        if imported["error"]:
            yield Finding(f"importing the package fails: {imported['error']}", path / "__init__.py")


class CallsReturnArchitecture(Rule):
    """Each register function, called with an architecture, returns the class of that name, and copes with none.

    It is called as VeOmni's loader calls it, with every model class that the generated file exports.

    Why: the checkpoint is loaded into another class: its head is dropped, the other head is random, and only INFO lines
    say so.

    Fine when: nobody trains that head; then raise an error that names the architecture.
    """

    id = "VEO902"
    name = "register-function-returns-architecture-when-called"
    target = "veomni"
    level = "import"
    requires = ("torch", "veomni")
    obligations = ("VEO-REG-02", "VEO-REG-11", "VEO-REG-16")
    BAD = ({"__init__.py": REGISTER.rpartition("{")[0] + "OlmoeForCausalLM\n"},)
    GOOD = (_GOOD,)

    def check(self, imported: Imported, registrations: list[Registration], path: Path) -> Findings:
        _excuse(imported)
        lines = {item.key: (item.path, item.line) for item in registrations if item.registry == MODELING}
        for key, architecture, name, error in imported["returned"]:
            place = lines.get(key, (path / "__init__.py", 1))
            if architecture is not None and name and name != architecture:
                yield Finding(f"called with '{architecture}', '{key}' returns {name}", *place)
            elif architecture is None and error:
                yield Finding(
                    f"called with no architecture, '{key}' ends in {error}", *place, severity=Severity.warning
                )


class ClassesBuild(Rule):
    """Every class that a register function returns is built from the toy config, on the meta device.

    Why: an attribute that the config does not have, a base class that was dropped, or a constructor that upstream
    changed: training ends before the first step, after minutes of waiting for a cluster.

    Fine when: the class needs a package that is not here; then the rule says nothing.
    """

    id = "VEO903"
    name = "returned-classes-build-on-meta"
    target = "veomni"
    level = "import"
    requires = ("torch", "veomni")
    obligations = ("VEO-TEST-01", "VEO-PG-14", "VEO-REG-07", "VEO-MOE-24")
    failure_modes = ("missing-self-attribute", "nested-config-read")
    BAD = (_with("OlmoeForCausalLM.__init__ = lambda self, config: config.no_such_value"),)
    GOOD = (_GOOD,)

    def check(self, imported: Imported, path: Path) -> Findings:
        _excuse(imported)
        for name, error in imported["built"].items():
            if error:
                yield Finding(f"{name} cannot be built from its config: {error}", path / "__init__.py")


class HooksAnswer(Rule):
    """Every hook that VeOmni looks up on a model answers what VeOmni goes on with, when it is called as VeOmni does.

    The classes that FSDP2 shards by are there; each name of a parallel plan is a parameter's, cut along its experts;
    what the data pipeline is handed can be sent to another process and be called there; a converter has the methods
    that are called; the index of a hub checkpoint becomes one of the parameters; where a config.json says that
    embeddings are tied, they can be; a hook for loading drops all that the model has not; none writes into the config;
    functions that are registered answer on other devices.

    Why: a hook that names what the model does not have is passed over in silence, or ends the run on the machine that
    first takes the branch: workers of a data loader that are spawned say "Can't pickle local object".

    Fine when: what a hook is for is never used, as a data loader without workers.
    """

    id = "VEO904"
    name = "hooks-answer-when-called"
    target = "veomni"
    level = "import"
    requires = ("torch", "veomni")
    obligations = ("VEO-PG-46", "VEO-VLM-08", "VEO-VLM-13", "VEO-REG-13")
    failure_modes = ("data-contract", "tied-weights", "ep-plan-stale")
    BAD = (
        _hook("lambda **kwargs: kwargs"),
        _with("OlmoeForCausalLM.get_parallel_plan = lambda self: {'ep': {}}"),
    )
    GOOD = (_hook("print"), _GOOD)

    def check(self, imported: Imported, path: Path) -> Findings:
        _excuse(imported)
        for hook, said in _wrong_hooks(imported):
            if hook != _LORA:
                yield Finding(said, path / "__init__.py")


class AdaptersReachExperts(Rule):
    """Where experts are one parameter each projection, the names by which adapters are asked for are translated.

    Why: LoRA on gate_proj, up_proj and down_proj finds no module of such a name and leaves all experts out, without a
    word.

    Fine when: nobody adapts the experts.
    """

    id = "VEO907"
    name = "adapters-reach-stacked-experts"
    severity = Severity.warning
    target = "veomni"
    level = "import"
    requires = ("torch", "veomni")
    failure_modes = ("lora-keys", "lora-fused-experts")
    BAD = (_GOOD, _adapted("*.gate_proj.weight"), _adapted("gate_up_proj"))
    GOOD = (_adapted("*_proj"),)

    def check(self, imported: Imported, path: Path) -> Findings:
        _excuse(imported)
        for hook, said in _wrong_hooks(imported):
            if hook == _LORA:
                yield Finding(said, path / "__init__.py")


class ToyCheckpointLoads(Rule):
    """A toy checkpoint in the hub's layout is loaded by VeOmni's own loader, every tensor right, and back.

    transformers builds the toy, in which every element differs, and saves it as it is published; the names, the loaded
    tensors and the export are compared with transformers', in processes of their own.

    Why: a key that no converter takes, or an expert in the wrong place, is an INFO line: training starts on weights
    that are partly random.

    Fine when: the hub has the model in another layout than transformers saves; `omni-kit parity --layout memory` and
    `--checkpoint` compare on that one.
    """

    id = "VEO905"
    name = "toy-checkpoint-loads-bit-for-bit"
    target = "veomni"
    level = "toy"
    requires = ("torch", "veomni", "accelerate")
    obligations = (
        "VEO-MOE-01",
        "VEO-MOE-18",
        "VEO-MOE-20",
        "VEO-MOE-21",
        "VEO-MOE-22",
        "VEO-MOE-23",
        "VEO-TEST-09",
        "VEO-TEST-10",
        "VEO-OMNI-09",
    )
    failure_modes = (
        "expert-layout-mismatch",
        "nonstrict-load",
        "fused-export-unloadable",
        "tied-weights",
        "blind-integration-test",
    )
    BAD = ({"__init__.py": REGISTER.replace(_CONVERTER, "None")},)
    GOOD = (_GOOD,)

    def check(
        self, loaded: Sequence[Sequence[str]], registrations: list[Registration], transformers: Library, path: Path
    ) -> Findings:
        keys = {item.key for item in registrations if item.registry == MODELING}
        if not keys & model_types(transformers).keys():
            raise NotApplicable("transformers has no model of the registered types")
        for level, status, reason in loaded:
            if status == "fail":
                yield Finding(f"{level}: {reason}", path / "__init__.py")
            elif status == "error":
                raise NotApplicable(f"{level} could not be judged: {reason}")


def _wrong_hooks(imported: Imported) -> Iterator[tuple[str, str]]:
    """The hooks that answer wrongly, and what is said of the first class of which the same is true."""
    wrong: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, hook, said in imported["hooks"]:
        wrong.setdefault((hook, said.partition(":")[0]), []).append((name, said))
    for (hook, _), found in wrong.items():
        name, said = found[0]
        more = f" (and {counted(len(found) - 1, 'more class')})" if len(found) > 1 else ""
        yield hook, f"{name}{more}, {hook}: {said}"


def _excuse(imported: Imported) -> None:
    if imported["lacks"]:
        raise NotApplicable(f"the model needs {imported['lacks']}, which is not installed")


class TypesFitWhatIsCalled(Rule):
    """A type checker finds no call, attribute or import that does not fit, but for what upstream's own file has, too.

    `ty` reads generated and hand-written files beside upstream's modeling file, and the installed libraries. It runs
    nothing.

    Why: an argument that upstream has renamed, or an attribute that is gone, fails at the first step that comes by, or
    behind a condition that no test has taken.

    Fine when: the object really has it at run time; then say so in a comment that silences the finding.
    """

    id = "VEO906"
    name = "types-fit-what-is-called"
    target = "veomni"
    level = "import"
    severity = Severity.warning
    requires = ("ty",)
    obligations = ("VEO-PG-09", "VEO-PG-44")
    failure_modes = ("missing-self-attribute", "removed-upstream-import")
    BAD = (
        _with("from pathlib import Path\n\n    def shown(path: Path):\n        return path.shortened"),
        _with("from textwrap import indent\n\n    told = lambda text: indent(text, '  ', width=2)"),
    )
    GOOD = (_GOOD,)

    def check(self, typed: Sequence[Any]) -> Findings:
        if not typed:
            raise NotApplicable("not tested: ty is not installed (pip install ty)")
        for path, line, said in typed[1:]:
            yield Finding(said, Path(path), line)
