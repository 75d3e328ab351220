"""Rules about what only a run can tell: VEO901 to VEO907."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import REGISTER
from omni_checkers.veomni.facts.registry import MODELING, Registration
from omni_kit.plurals import counted
from omni_kit.pysource.library import Library
from omni_kit.upstream.transformers.configs import model_types

Imported = Mapping[str, Any]
_CONVERTER = "staticmethod(create_olmoe_checkpoint_tensor_converter)"
_GOOD = {"__init__.py": REGISTER}


def _with(statement: str) -> dict[str, str]:
    """Return the register function with a statement before it returns."""
    return {"__init__.py": REGISTER.replace("    return ", f"    {statement}\n    return ")}


def _hook(value: str) -> dict[str, str]:
    return _with(f"OlmoeForCausalLM.get_position_id_func = lambda self: {value}")


_LORA = "_convert_lora_targets_to_parameters"


def _adapted(pattern: str) -> dict[str, str]:
    """Return the register function of a model whose experts can be adapted by this name."""
    hook = f"lambda model, names, patterns: ([], [*patterns, '*.mlp.experts.{pattern}'])"
    return _with(f"OlmoeForCausalLM.{_LORA} = OlmoeModel.{_LORA} = staticmethod({hook})")


class PackageImports(Rule):
    """The package imports next to VeOmni and registers its keys.

    Why: without it nobody can use the model.

    Fine when: the model needs a package or a device that this machine does not have. A missing package is a note, not a
    finding.
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
    """Each register function returns the class of each architecture, and accepts None.

    The rule calls it as VeOmni's loader does, with every model class that the generated file exports.

    Why: VeOmni loads the checkpoint into another class, drops its head and initialises another head at random, with
    only INFO logs.

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
                    f"called without an architecture, '{key}' raises {error}", *place, severity=Severity.warning
                )


class ClassesBuild(Rule):
    """Every class that a register function returns builds from the toy config on the meta device.

    Why: a missing config attribute, a dropped base class or a changed upstream constructor ends training before the
    first step, after minutes of waiting for a cluster.

    Fine when: the class needs a package that is not installed; the rule then does not apply.
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
    """Every hook that VeOmni looks up on a model works when VeOmni calls it.

    The classes that FSDP2 shards by exist. Each name of a parallel plan is a parameter, split between its experts.
    Objects for the data pipeline can be pickled and called in another process. A converter has the methods that VeOmni
    calls. A hub checkpoint's index maps to the parameters. Embeddings can be tied if a config.json requires it. A
    loading hook drops all keys that the model lacks. Hooks do not modify the config. Registered functions work on other
    devices.

    Why: VeOmni ignores a hook that names missing parts, or the run fails on the first machine that takes the branch:
    spawned data loader workers raise "Can't pickle local object".

    Fine when: nobody uses the hook, for example with a data loader without workers.
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
    """Translate adapter target names where one parameter stores each projection of all experts.

    Why: LoRA on gate_proj, up_proj and down_proj finds no module of that name and silently skips all experts.

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
    """VeOmni's loader loads and exports a toy checkpoint in the hub's layout bit for bit.

    transformers builds the toy, with a different value in every element, and saves it in its published layout. The rule
    compares names, loaded tensors and the export with transformers', in separate processes.

    Why: a key that no converter accepts, or an expert at the wrong index, gives only an INFO log: training starts on
    partly random weights.

    Fine when: the hub stores the model in another layout than transformers saves; `omni-kit parity --layout memory` and
    `--checkpoint` compare that layout.
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
                raise NotApplicable(f"{level} could not be checked: {reason}")


def _wrong_hooks(imported: Imported) -> Iterator[tuple[str, str]]:
    """Yield the hooks that return wrong results, each with the message of the first class that it concerns."""
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
    """A type checker finds no wrong call, attribute or import that upstream's own file does not have too.

    `ty` checks generated and hand-written files next to upstream's modeling file and the installed libraries. It runs
    nothing.

    Why: a renamed argument or a removed attribute fails at the first step that reaches it, or behind a condition that
    no test covers.

    Fine when: the object has it at run time; state that in a comment that suppresses the finding.
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
