"""A value that upstream computes in another way is followed into a branch of the patch, and only for the same use."""

import pytest

from omni_kit.patchgen.upgrade.merging import merge_definition
from omni_kit.patchgen.upgrade.renames import keep_apart, split_locals
from omni_kit.patchgen.upgrade.values import follow_values

BASE = """\
def forward(self, x, keep=0):
    hidden = self.model(x)
    indices = slice(-keep, None) if isinstance(keep, int) else keep
    logits = self.head(hidden[:, indices, :])
    return {"logits": logits}
"""
THEIRS = """\
def forward(self, x, keep=0):
    hidden = self.model(x)
    hidden = kept(hidden, keep)
    logits = self.head(hidden)
    return {"logits": logits}
"""
OURS = """\
def forward(self, x, keep=0, labels=None):
    hidden = self.model(x)
    indices = slice(-keep, None) if isinstance(keep, int) else keep
    loss = logits = None
    if labels is not None:
        loss = fused(hidden, labels)
    else:
        # Only where nobody trains.
        logits = self.head(hidden[:, indices, :])
    return {"logits": logits, "loss": loss}
"""


def merged(ours: str, theirs: str = THEIRS) -> str | None:
    found = follow_values(BASE, ours, theirs)
    if found is None:
        return None
    result = merge_definition(*found)
    assert not result.clashes
    return result.text


def test_a_branch_gets_the_new_value_and_keeps_its_comment() -> None:
    assert merge_definition(BASE, OURS, THEIRS).clashes
    assert merged(OURS) == OURS.replace("hidden[:, indices, :]", "kept(hidden, keep)").replace(
        "    indices = slice(-keep, None) if isinstance(keep, int) else keep\n", ""
    )


def test_a_local_that_holds_the_value_gets_the_new_one() -> None:
    ours = OURS.replace("    loss = logits", "    hidden = hidden[:, indices, :]\n    loss = logits")
    ours = ours.replace("self.head(hidden[:, indices, :])", "self.head(hidden)")
    text = merged(ours)
    assert text is not None
    assert "    hidden = kept(hidden, keep)\n    loss" in text
    assert "indices" not in text


@pytest.mark.parametrize("local", [False, True], ids=["in place", "local"])
def test_a_second_run_changes_nothing(local: bool) -> None:
    ours = OURS
    if local:
        ours = OURS.replace("    loss = logits", "    hidden = hidden[:, indices, :]\n    loss = logits")
        ours = ours.replace("self.head(hidden[:, indices, :])", "self.head(hidden)")
    once = merged(ours)
    assert once is not None
    assert merged(once) == once


def test_a_comment_of_the_patch_over_a_line_that_goes_stays() -> None:
    text = merged(OURS.replace("    indices = slice", "    # Ours.\n    indices = slice"))
    assert text is not None
    assert "# Ours." in text


def test_a_helper_local_that_the_patch_reads_elsewhere_stays() -> None:
    text = merged(OURS.replace("fused(hidden, labels)", "fused(hidden, labels, indices)"))
    assert text is not None
    assert "indices = slice" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.head(hidden[:, indices, :])", "self.other(hidden[:, indices, :])"),
        ("fused(hidden, labels)", "fused(hidden[:, indices, :], labels)"),
        ("    loss = logits", "    hidden = hidden * 2\n    loss = logits"),
        ("hidden = self.model(x)", "hidden = self.model(x) * 2"),
        ("slice(-keep, None)", "slice(-keep, -1)"),
    ],
    ids=["other use", "two uses", "set again", "set otherwise", "own value"],
)
def test_what_the_patch_does_otherwise_is_left_to_a_person(old: str, new: str) -> None:
    assert old in OURS
    assert follow_values(BASE, OURS.replace(old, new, 1), THEIRS) is None


def test_two_changed_values_are_left_to_a_person() -> None:
    theirs = THEIRS.replace("self.head(hidden)", "self.head(hidden, self.scale)")
    assert follow_values(BASE, OURS, theirs) is None


def test_a_value_that_the_patch_keeps_under_a_name_of_its_own() -> None:
    base = "def f(x):\n    s = g(x)\n    s = soft(s)\n    top = best(s)\n    return s, top.to(s.dtype)\n"
    ours = "def f(x):\n    s = g(x)\n    w = soft(s)\n    top = best(w)\n    return s, top.to(w.dtype)\n"
    theirs = "def f(x):\n    s = g(x)\n    p = soft(s)\n    top = best(p)\n    return s, top.to(s.dtype)\n"
    assert merge_definition(base, ours, theirs).clashes
    base, theirs = split_locals(base, ours, theirs)
    assert merge_definition(base, ours, theirs).text == ours.replace("w.dtype", "s.dtype")


def test_a_name_of_its_own_that_the_patch_sets_twice_is_not_followed() -> None:
    base = "def f(x):\n    s = g(x)\n    s = soft(s)\n    return s\n"
    ours = "def f(x):\n    s = g(x)\n    w = soft(s)\n    w = w * 2\n    return w\n"
    assert split_locals(base, ours, base) == (base, base)


def test_a_helper_local_in_the_branch_is_followed() -> None:
    line = "    indices = slice(-keep, None) if isinstance(keep, int) else keep\n"
    ours = OURS.replace(line, "").replace("    else:\n", f"    else:\n    {line}", 1)
    same = follow_values(BASE, ours, THEIRS)
    assert same is not None
    assert "indices" not in same[1]
    assert "self.head(kept(hidden, keep))" in same[1]


def test_the_first_field_of_a_result_is_its_index() -> None:
    base, theirs = (
        one.replace("hidden = self.model(x)", "hidden = self.model(x)\n    hidden = out[0]") for one in (BASE, THEIRS)
    )
    ours = OURS.replace("hidden = self.model(x)", "hidden = self.model(x)\n    hidden = out.last_hidden_state")
    assert follow_values(base, ours, theirs) is not None
    assert follow_values(base, ours.replace("out.last_hidden_state", "out.logits"), theirs) is None


LIMIT = """\
def forward(self, x, cu{more}):
    if self.fast:
        limit = {value}
        return attend(x, limit=limit)
    return slow(x)
"""
OWN = """\
def forward(self, x, cu, **kwargs):
    if self.fast:
        # Precomputed.
        limit = kwargs.pop("own", None)
        if limit is None:
            limit = cu.max()
        return attend(x, limit=limit)
    return slow(x)
"""


def test_a_new_parameter_of_a_locals_name_reaches_the_fallback_of_the_patch() -> None:
    base = LIMIT.format(more="", value="cu.max()")
    theirs = LIMIT.format(more=", limit=None", value="longest(cu, limit)")
    assert merge_definition(base, OWN, theirs).clashes
    same = keep_apart(base, OWN, theirs)
    assert same is not None
    result = merge_definition(*same)
    assert not result.clashes
    assert "            own_limit = longest(cu, limit)\n        return attend(x, limit=own_limit)" in result.text
    assert 'own_limit = kwargs.pop("own", None)' in result.text
    assert "limit=None, **kwargs" in result.text


def test_a_parameter_that_upstream_reads_elsewhere_keeps_its_name() -> None:
    base = LIMIT.format(more="", value="cu.max()")
    theirs = LIMIT.format(more=", limit=None", value="longest(cu, limit)").replace("slow(x)", "slow(x, limit)")
    assert keep_apart(base, OWN, theirs) is None
    assert keep_apart(base, OWN, base) is None
