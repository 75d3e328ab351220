"""Facts of two versions beside each other: alike, renamed, changed upstream with its line, or not explained."""

from pathlib import Path

from omni_kit.coverage.facts import CHECKED, Fact, Facts, all_names, names_of
from omni_kit.coverage.versions import LEAST_EXPLAINED, compare, page

OLD = "class Norm:\n    def forward(self, x):\n        return self.weight * x\n\n\nclass Same:\n    pass\n"
NEW = "class Norm:\n    def forward(self, x):\n        return (1 + self.weight) * x\n\n\nclass Same:\n    pass\n"


def facts(place: Path, text: str, *found: Fact) -> Facts:
    root = place / "transformers"
    root.mkdir(parents=True)
    (root / "modeling.py").write_text(text, encoding="utf-8")
    return Facts({"transformers": place.name}, {"transformers": str(root)}, {"foo": list(found)})


def fact(what: str, choice: str, line: int = 2) -> Fact:
    return Fact("decisions", what, choice, f"transformers/modeling.py:{line}")


def test_alike(tmp_path: Path) -> None:
    one = compare(facts(tmp_path / "1", OLD, fact("norm", "patch")), facts(tmp_path / "2", NEW, fact("norm", "patch")))
    assert not one.changes
    assert one.share() == 1


def test_a_change_cites_upstreams_line(tmp_path: Path) -> None:
    one = compare(facts(tmp_path / "1", OLD, fact("norm", "patch")), facts(tmp_path / "2", NEW, fact("norm", "skip")))
    (change,) = one.changes
    assert change.cause == (
        "`return self.weight * x` became `return (1 + self.weight) * x` (transformers/modeling.py:3)"
    )
    assert change.cause in page([one])
    assert one.share() == 1


def test_a_change_without_a_cause_counts(tmp_path: Path) -> None:
    one = compare(facts(tmp_path / "1", OLD, fact("norm", "patch")), facts(tmp_path / "2", OLD, fact("norm", "skip")))
    assert one.changes[0].cause == ""
    assert one.share() < LEAST_EXPLAINED
    assert "not explained |" in page([one])


def test_annotations_and_decorators_are_no_cause(tmp_path: Path) -> None:
    typed = OLD.replace("    def forward(self, x):", "    @documented(1)\n    def forward(self, x: Tensor) -> Tensor:")
    one = compare(facts(tmp_path / "1", OLD, fact("norm", "patch")), facts(tmp_path / "2", typed, fact("norm", "skip")))
    assert one.changes[0].cause == ""


def test_a_new_conversion_is_a_cause(tmp_path: Path) -> None:
    converter = Fact("decisions", "checkpoint converter", "generate", "model_type:foo")
    base, other = facts(tmp_path / "1", OLD, fact("norm", "patch")), facts(tmp_path / "2", OLD, converter)
    for one, text in ((base, "MAPPING = {}\n"), (other, "MAPPING = {\n    'foo': [],\n}\n")):
        Path(one.roots["transformers"], "conversion_mapping.py").write_text(text, encoding="utf-8")
    causes = {change.fact.what: change.cause for change in compare(base, other).changes}
    assert causes["checkpoint converter"] == "a conversion of foo is new (transformers/conversion_mapping.py:2)"
    assert causes["norm"] == ""


def test_another_name_of_the_same_thing_is_alike(tmp_path: Path) -> None:
    before, after = fact("experts OldName", "patch"), fact("experts NewName", "patch")
    one = compare(facts(tmp_path / "1", OLD, before), facts(tmp_path / "2", OLD, after))
    assert one.counts["decisions", "renamed upstream"] == 1
    assert not one.changes


def test_a_class_that_is_gone_is_a_cause(tmp_path: Path) -> None:
    before = fact("experts Same", "patch", line=6)
    one = compare(facts(tmp_path / "1", OLD, before), facts(tmp_path / "2", OLD.partition("\n\n\n")[0]))
    assert "Same is gone" in one.changes[0].cause


def test_subjects_of_one_version_are_named(tmp_path: Path) -> None:
    base, other = facts(tmp_path / "1", OLD), facts(tmp_path / "2", OLD)
    other.subjects["bar"] = []
    one = compare(base, other)
    assert (one.only_here, one.only_there) == ([], ["bar"])


def test_facts_survive_being_written(tmp_path: Path) -> None:
    one = facts(tmp_path, OLD, fact("norm", "patch"))
    assert Facts.load(one.dump()) == one


def test_names_that_a_version_lacks_are_left_out() -> None:
    known = all_names()
    base = Facts({}, {}, {name: [] for name in (known[0], "no_such_model", f"rules of {CHECKED[0]}")})
    assert names_of(base) == ([known[0]], [CHECKED[0]])
