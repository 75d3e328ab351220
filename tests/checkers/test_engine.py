"""The engine: facts by name, tri-state results, suppressions, selection, ids."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omni_checkers import Finding, NotApplicable, Report, Rule, Severity, all_rules, check, find_rule, select_rules
from omni_checkers.engine import registry
from omni_checkers.engine.facts import Facts, fact, given
from omni_checkers.engine.files import read_file
from omni_kit.diagnostics.suppress import suppressions
from omni_kit.errors import BadInput
from omni_kit.patchgen import run_config

from .conftest import Subject, found

_STALE_PLAN = """\
from torch.distributed.tensor import Shard
from veomni.distributed.parallel_plan import ParallelPlan


def get_parallel_plan():
    return ParallelPlan(
        extra_parallel_plan={{
            "ep": {{
                "model.layers.*.mlp.experts.gate_up_proj": Shard(0),
                "model.layers.*.mlp.experts.down_proj": Shard(0),
{above}                "model.layers.*.mlp.experts.gate_proj": Shard(0),{beside}
            }}
        }}
    )
"""


def plan(above: str = "", beside: str = "") -> dict[str, str]:
    return {
        "parallel_plan.py": _STALE_PLAN.format(
            above=above and f"                {above}\n", beside=beside and f"  {beside}"
        )
    }


class TestFacts:
    def test_facts_are_given_by_parameter_name_and_computed_once(self) -> None:
        calls: list[str] = []

        def double(number: int) -> int:
            calls.append("double")
            return 2 * number

        facts = Facts({"number": 4}, {"double": double, "text": lambda double: f"{double}!"})
        assert facts.call(lambda text, double: (text, double)) == ("8!", 8)
        assert calls == ["double"]

    def test_a_fact_that_does_not_apply_does_so_for_everyone(self) -> None:
        def missing() -> Any:
            raise NotApplicable("no plan")

        facts = Facts({}, {"missing": missing, "later": lambda missing: missing})
        for name in ("missing", "later", "missing"):
            with pytest.raises(NotApplicable, match="no plan"):
                facts.get(name)

    def test_an_unknown_fact_is_a_mistake_of_the_rule(self) -> None:
        with pytest.raises(KeyError):
            Facts({}, {}).get("nothing")

    def test_facts_are_declared_by_decorators(self) -> None:
        def double(number: int) -> int:
            return 2 * number

        def number() -> int:
            raise NotImplementedError

        declared: dict[str, Callable[..., Any]] = {"double": fact(double), "number": given(number)}
        assert Facts({"number": 4}, declared).value(double) == 8
        with pytest.raises(KeyError):
            Facts({}, declared).value(double)

    def test_a_fact_declares_its_type(self) -> None:
        def untyped():  # type: ignore[no-untyped-def]
            return 1

        with pytest.raises(TypeError, match="declares no type"):
            fact(untyped)


class TestSuppression:
    def test_on_the_line_of_the_finding(self, subject: Subject) -> None:
        comment = "# omni-kit: ignore[VEO301] kept for old checkpoints"
        report = check([subject(edits=plan(beside=comment))], select=["VEO301"])
        assert (report.findings, report.suppressed) == ([], 1)

    def test_alone_on_the_line_above(self, subject: Subject) -> None:
        comment = "# omni-kit: ignore[VEO301] kept for old checkpoints"
        report = check([subject(edits=plan(above=comment))], select=["VEO301"])
        assert (report.findings, report.suppressed) == ([], 1)

    @pytest.mark.parametrize("comment", ["# omni-kit: ignore[VEO302] wrong id", "# ignore[VEO301] not ours"])
    def test_of_something_else_silences_nothing(self, comment: str, subject: Subject) -> None:
        report = check([subject(edits=plan(beside=comment))], select=["VEO301"])
        assert (len(report.findings), report.suppressed) == (1, 0)

    def test_without_a_reason_silences_nothing_and_is_reported(self, subject: Subject) -> None:
        path = subject(edits=plan(beside="# omni-kit: ignore[VEO301]"))
        assert {finding.rule for finding in found(path, "VEO301", "OMK001")} == {"VEO301", "OMK001"}

    def test_beside_code_does_not_reach_the_next_line(self, tmp_path: Path) -> None:
        file = tmp_path / "a.py"
        file.write_text("x = 1  # omni-kit: ignore[VEO301, VEO302] two at once\ny = 2\n", encoding="utf-8")
        (good,), wrong = suppressions(file, file.read_text(encoding="utf-8"))
        assert wrong == []
        assert [good.covers(Finding("", file, line, rule="VEO302")) for line in (1, 2)] == [True, False]

    def test_in_a_broken_file_ends_in_no_traceback(self, tmp_path: Path) -> None:
        file = tmp_path / "a.py"
        file.write_text("x = (  # omni-kit: ignore[VEO301] open\n", encoding="utf-8")
        assert len(suppressions(file, file.read_text(encoding="utf-8"))[0]) == 1


class TestFiles:
    def test_a_file_that_is_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_bytes(b"\xff\xfe\x00")
        file = read_file(tmp_path / "a.py")
        assert file.tree is None
        assert file.error is not None

    def test_a_null_byte(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text("x = 1\0", encoding="utf-8")
        assert read_file(tmp_path / "a.py").tree is None

    def test_a_file_that_is_broken_is_one_finding_and_no_crash(self, subject: Subject) -> None:
        path = subject(edits={"checkpoint_tensor_converter.py": "class Converter(:\n"})
        findings = found(path)
        assert "OMK002" in {finding.rule for finding in findings}
        assert all(
            finding.path.name == "checkpoint_tensor_converter.py" for finding in findings if finding.rule == "OMK002"
        )


class TestSelection:
    def test_by_prefix(self) -> None:
        assert {rule.id[:4] for rule in select_rules(["veo2", "OMK"])} == {"VEO2", "OMK0"}
        assert "OMK" in (left := {rule.id[:3] for rule in select_rules([], ["VEO"])})
        assert "VEO" not in left

    @pytest.mark.parametrize("arguments", [(["VEO0"], []), ([], ["ABC"])])
    def test_of_an_unknown_id_is_bad_input(self, arguments: tuple[list[str], list[str]]) -> None:
        with pytest.raises(BadInput, match="no rule"):
            select_rules(*arguments)

    def test_of_nothing_is_bad_input(self, olmoe: Path) -> None:
        with pytest.raises(BadInput, match="no rule is selected"):
            check([olmoe], select=["VEO1"], ignore=["VEO"])

    def test_of_one_rule_by_id(self) -> None:
        assert find_rule("veo201").id == "VEO201"
        with pytest.raises(BadInput, match="unknown rule 'VEO999'"):
            find_rule("VEO999")


class TestIds:
    def test_are_unique_and_well_formed(self) -> None:
        ids = [rule.id for rule in all_rules()]
        assert len(ids) == len(set(ids))
        assert all(len(rule_id) == 6 and rule_id[:3].isupper() and rule_id[3:].isdigit() for rule_id in ids)

    def test_a_retired_id_is_not_given_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(registry.RETIRED, "VEO201", "replaced by VEO299")
        registry.all_rules.cache_clear()
        with pytest.raises(BadInput, match="retired id VEO201"):
            all_rules()
        monkeypatch.undo()
        registry.all_rules.cache_clear()

    def test_a_retired_id_says_what_became_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(registry.RETIRED, "VEO998", "replaced by VEO201")
        with pytest.raises(BadInput, match="replaced by VEO201"):
            find_rule("VEO998")

    def test_obligations_look_like_obligations(self) -> None:
        for rule in all_rules():
            assert all(item.split("-")[0] in {"VEO", "DIT", "SGL", "DIF"} for item in rule.obligations)


def test_reading_the_rules_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, omni_checkers; omni_checkers.all_rules();"
        "print(sorted({'torch', 'transformers', 'diffusers', 'veomni'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class TestThirdParties:
    def test_rules_come_in_through_an_entry_point(self, monkeypatch: pytest.MonkeyPatch, subject: Subject) -> None:
        import sys
        from types import ModuleType

        module = ModuleType("their_rules")

        class TheirRule(Rule):
            """A plugin has a README.

            Why: nobody knows what it is.

            Fine when: never.
            """

            id = "ABC001"
            name = "readme"
            target = "veomni"
            severity = Severity.info

            def check(self, path: Path) -> list[Finding]:
                return [] if (path / "README.md").is_file() else [Finding("no README.md", path / "__init__.py")]

        TheirRule.__module__ = "their_rules"
        module.TheirRule = TheirRule  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "their_rules", module)

        class Entry:
            def load(self) -> ModuleType:
                return module

        monkeypatch.setattr(registry, "entry_points", lambda group: [Entry()] if group == "omni_kit.rules" else [])
        registry.all_rules.cache_clear()
        try:
            (finding,) = found(subject(edits={"README.md": None}), "ABC")
            assert (finding.rule, finding.severity) == ("ABC001", Severity.info)
        finally:
            registry.all_rules.cache_clear()


def _crashes(self: Rule, path: Path) -> list[Finding]:
    raise ZeroDivisionError("oh\nno")


def _crashes_halfway(self: Rule, path: Path) -> Iterator[Finding]:
    yield Finding("first", path / "__init__.py")
    raise KeyError("second")


def _asks_for_what_nobody_knows(self: Rule, no_such_fact: object) -> list[Finding]:
    return []


def _finds_nonsense(self: Rule, path: Path) -> list[str]:
    return ["no finding"]


def _finds_nothing(self: Rule, path: Path) -> list[Finding]:
    return []


def _finds_one(self: Rule, path: Path) -> list[Finding]:
    return [Finding("one", path / "__init__.py")]


def _does_not_apply(self: Rule, path: Path) -> list[Finding]:
    raise NotApplicable("there is nothing")


class TestRun:
    def test_a_path_without_a_model_is_bad_input(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="nothing to check"):
            check([tmp_path])

    def test_one_bad_path_among_good_ones_is_bad_input(self, olmoe: Path, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="does not exist"):
            check([olmoe, tmp_path / "nowhere"])

    def test_a_model_given_twice_is_looked_at_once(self, olmoe: Path) -> None:
        assert len(check([olmoe, olmoe], select=["VEO1"]).models) == 1

    def test_a_checkout_means_all_its_models(self, subject: Subject) -> None:
        path = subject("qwen3_moe")
        assert [model.name for model in check([path.parents[3]], select=["VEO101"]).models] == ["qwen3_moe"]

    def test_every_rule_has_a_result_for_every_model(self, olmoe: Path) -> None:
        report = check([olmoe])
        known = [rule for rule in all_rules() if rule.level == "static" and rule.target in ("any", "veomni")]
        assert [result.rule for result in report.results] == [rule.id for rule in known]
        assert {result.status for result in report.results} == {"pass", "not-applicable"}

    def test_findings_are_sorted_by_place(self, subject: Subject) -> None:
        edits = plan() | {
            "__init__.py": "from veomni.models.loader import MODELING_REGISTRY as R\n\nR['x'] = R['y'] = 1\n"
        }
        findings = found(subject(edits=edits))
        assert [(f.path, f.line) for f in findings] == sorted((f.path, f.line) for f in findings)

    def test_json_is_the_contract(self, subject: Subject) -> None:
        path = subject(edits=plan())
        data = json.loads(json.dumps(check([path], select=["VEO301"]).as_json(path)))
        assert data["checked"] == {"models": 1, "files": 9, "rules": 1}
        assert data["baseline"] == {"matched": 0, "stale": []}
        (finding,) = data["findings"]
        keys = {"rule", "severity", "path", "line", "column", "message", "why", "fixable", "obligation"}
        assert finding.keys() == keys
        assert (finding["path"], finding["obligation"]) == ("parallel_plan.py", "VEO-MOE-06")

    @pytest.mark.parametrize(
        ("check_", "says"),
        [
            (_crashes, "VEO101 failed: ZeroDivisionError: oh no"),
            (_crashes_halfway, "VEO101 failed: KeyError: 'second'"),
            (_asks_for_what_nobody_knows, "VEO101 failed: KeyError: 'no_such_fact'"),
            (_finds_nonsense, "VEO101 failed: AttributeError"),
        ],
    )
    def test_a_rule_that_crashes_is_a_finding_and_the_others_go_on(
        self, check_: Callable[..., Any], says: str, olmoe: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(find_rule("VEO101"), "check", check_)
        report = check([olmoe])
        (finding,) = report.findings
        assert finding.rule == "OMK003"
        assert finding.message.startswith(says)
        assert sum(result.status == "pass" for result in report.results) >= 10

    @pytest.mark.parametrize("check_", [_finds_nothing, _finds_one, _does_not_apply])
    def test_a_rule_that_comes_to_a_verdict_is_no_finding_of_its_own(
        self, check_: Callable[..., Any], olmoe: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(find_rule("VEO101"), "check", check_)
        assert "OMK003" not in {finding.rule for finding in check([olmoe]).findings}

    @pytest.mark.parametrize(("name", "text", "line"), [
        ("train.yaml", "a:\n  - b\n c: 1\n", 3),
        ("train_lora.yaml", "- 1\n", 1),
        ("toy_config.json", '{\n "a": 1,\n}', 3),
        (".omni-kit.toml", "[answers]\nname\n", 2),
        ("data.json", "{", 1),
    ])  # fmt: skip
    def test_a_document_that_cannot_be_read_is_a_finding(
        self, name: str, text: str, line: int, subject: Subject
    ) -> None:
        path = subject(edits={name: text})
        (finding,) = found(path, "OMK004")
        assert (finding.path, finding.line) == (path / name, line)

    @pytest.mark.parametrize(
        ("folder", "count"), [("text/qwen3_moe", 1), ("model_configs/qwen3_moe", 1), ("text/llama", 0)]
    )
    def test_configs_of_a_checkout_that_name_the_model_are_read(
        self, folder: str, count: int, subject: Subject
    ) -> None:
        name = f"../../../../configs/{folder}/any.{'json' if 'model' in folder else 'yaml'}"
        path = subject("qwen3_moe", edits={name: "{\n'a"})
        findings = found(path, "OMK", "VEO804")
        assert [(one.rule, one.path) for one in findings] == [("OMK004", (path / name).resolve())] * count

    def test_configs_of_a_checkout_are_read_while_the_package_cannot_be_parsed(self, subject: Subject) -> None:
        config = "../../../../configs/text/qwen3_moe/any.yaml"
        path = subject("qwen3_moe", edits={config: "{\n'a", "__init__.py": "def MODELING_REGISTRY"})
        assert [one.rule for one in found(path, "OMK")] == ["OMK004", "OMK002"]

    @pytest.mark.parametrize(("name", "text"), [
        ("train.yaml", "a: &b\n  - 1\nc: *b\n"),
        ("sweep.yaml", "a: 1\n---\na: 2\n"),
        ("tags.yaml", "a: !choice [1, 2]\n"),
        ("data.json", "[1, NaN]"),
        ("toy_config.json", '{"hidden_size": 8}'),
        ("notes.toml", ""),
    ])  # fmt: skip
    def test_a_document_that_can_be_read_is_none(self, name: str, text: str, subject: Subject) -> None:
        assert found(subject(edits={name: text}), "OMK004") == []

    @pytest.mark.parametrize("name", ["parallel_plan.py", "checkpoint_tensor_converter.py", "__init__.py"])
    def test_a_file_that_cannot_be_parsed_is_the_only_finding(self, name: str, subject: Subject, olmoe: Path) -> None:
        text = (olmoe / name).read_text(encoding="utf-8")
        findings = check([subject(edits={name: f"{text}\ndef f(:\n"})]).findings
        assert [(finding.rule, finding.path.name) for finding in findings] == [("OMK002", name)]

    def test_what_does_not_import_a_file_that_cannot_be_parsed_is_judged(self, subject: Subject) -> None:
        path = subject(edits={"train.py": "def f(:\n", "parallel_plan.py": plan()["parallel_plan.py"]})
        assert {finding.path.name for finding in check([path]).findings} == {"train.py", "parallel_plan.py"}

    def test_what_a_generated_copy_repeats_is_one_finding(self, subject: Subject) -> None:
        line = "    return q_embed, k_embed"
        path = subject(edits={"olmoe_gpu_patch_gen_config.py": (line, f"{line}  # omni-kit: ignore[VEO301]")})
        run_config(path / "olmoe_gpu_patch_gen_config.py")
        assert len(found(path, "OMK001")) == 1

    def test_warnings_fail_only_when_strict(self) -> None:
        finding = Finding("", Path("a"), severity=Severity.warning)
        assert [Report(findings=[finding], strict=strict).ok for strict in (False, True)] == [True, False]
