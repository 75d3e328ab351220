"""The merge of one definition: what comes in, and what is left to a person."""

import pytest

from omni_kit.patchgen.upgrade.merging import merge_definition
from omni_kit.patchgen.upgrade.order import without_unread
from omni_kit.patchgen.upgrade.renames import rename_locals


def function(body: str, head: str = "def forward(self, x, y=None):") -> str:
    """A method with some statements, separated by semicolons or lines."""
    return f"{head}\n" + "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))


CASE = "elif isinstance(x, {b}):\n    fill(x)\n"
CASES = f"y = y.float()\nx = x.to(y)\nif isinstance(x, A):\n    init(x)\n{CASE}{{more}}"

MERGES = {
    "an addition behind a statement that upstream replaces by a call": (
        "qkv = self.qkv(x)\nq = qkv[0]\nk = qkv[1]\nreturn q @ k",
        "qkv = self.qkv(x)\nq = qkv[0]\nk = qkv[1]\nq, k = gather(q), gather(k)\nreturn q @ k",
        "q, k = self.project(x)\nreturn q @ k",
        "q, k = self.project(x)\nq, k = gather(q), gather(k)\nreturn q @ k",
    ),
    "a guard in front of statements that upstream drops": (
        "x = x.float()\ny = y.float()\nreturn x * y",
        "if kernel.bound:\n    return kernel(x, y)\nx = x.float()\ny = y.float()\nreturn x * y",
        "return x * y",
        "if kernel.bound:\n    return kernel(x, y)\nreturn x * y",
    ),
    "a guard where upstream adds a local": (
        "return self.proj(x)",
        "if kernel.bound:\n    return kernel(x)\nreturn self.proj(x)",
        "size = x.shape[0]\nreturn self.proj(x).view(size)",
        "if kernel.bound:\n    return kernel(x)\nsize = x.shape[0]\nreturn self.proj(x).view(size)",
    ),
    "statements that the patch drops and upstream only spells in another way": (
        "out = self.tower(x)\nparts = split(out.pooled)\nout.pooled = parts\nreturn out",
        "out = self.tower(x)\nreturn out",
        "out = self.tower(x)\nout.pooled = split(out.pooled)\nreturn out",
        "out = self.tower(x)\nreturn out",
    ),
    "two operands of one sum": (
        "x = x + self.attn(x, old=y, rest=1)\nreturn x",
        "x = x + self.attn(x, longest=9, old=y, rest=1)\nreturn x",
        "x = x + self.attn(x, rest=1)\nreturn x",
        "x = x + self.attn(x, longest=9, rest=1)\nreturn x",
    ),
    "an operand that needs parentheses": (
        "x = x * f(y, a)\nreturn x",
        "x = x * f(y, a, b=2)\nreturn x",
        "x = (x + 1) * f(y, a)\nreturn x",
        "x = (x + 1) * f(y, a, b=2)\nreturn x",
    ),
    "an addition of upstream's behind what the patch wraps": (
        "logits = linear(x)\nreturn logits",
        "with autocast(False):\n    logits = linear(x)\nreturn logits",
        "logits = linear(x)\nscores = logits.sigmoid()\nreturn scores",
        "with autocast(False):\n    logits = linear(x)\nscores = logits.sigmoid()\nreturn scores",
    ),
    "a keyword that the patch passes already": (
        "loss = self.loss(x, size=1)\nreturn loss",
        "if kernel.bound:\n    loss = kernel(x)\nelse:\n    loss, more = self.loss(x, size=1, y=y)\nreturn loss",
        "loss = self.loss(x, size=1, y=y)\nreturn loss",
        "if kernel.bound:\n    loss = kernel(x)\nelse:\n    loss, more = self.loss(x, size=1, y=y)\nreturn loss",
    ),
    "a field that upstream's result loses": (
        "return Output(loss=x, deltas=y.deltas)",
        "return OurOutput(loss=x, deltas=y.deltas, more=1)",
        "return Plain(loss=x)",
        "return OurOutput(loss=x, more=1)",
    ),
    "the same change with one more cast": (
        "return self.weight * x.to(y)",
        "return (self.weight.float() * x).to(y)",
        "return (self.weight * x).to(y)",
        "return (self.weight.float() * x).to(y)",
    ),
    "a cast that upstream drops, next to one that the patch adds": (
        "return self.weight.float() * x",
        "return self.weight.float() * x.float()",
        "return self.weight * x",
        "return self.weight * x.float()",
    ),
    "attributes that both set": (
        "super().__init__()",
        "super().__init__()\nself.bias.dim = 1",
        "super().__init__()\nself.scorer = Scorer(x)",
        "super().__init__()\nself.scorer = Scorer(x)\nself.bias.dim = 1",
    ),
    "a case that the patch leaves out, and one that upstream drops": (
        CASES.format(b="B", more="elif isinstance(x, C):\n    copy(x)"),
        CASES.format(b="B", more="elif isinstance(x, C):\n    copy(x)").replace(CASE.format(b="B"), ""),
        CASES.format(b="NewB", more="").replace("init(x)", "init(x, 1)"),
        CASES.format(b="B", more="").replace(CASE.format(b="B"), "").replace("init(x)", "init(x, 1)"),
    ),
    "names that both append": (
        'self.kinds = ["a", "b"]',
        'self.kinds = ["a", "b", "ours"]',
        'self.kinds = ["a", "b", "theirs"]',
        'self.kinds = ["a", "b", "theirs", "ours"]',
    ),
    "the patch has upstream's new statement already, next to an old one that upstream drops": (
        "kept = y if x else None\nif y is None:\n    y = make()\nreturn Out(x=x, y=kept)",
        "if y is None and x:\n    y = make()\nkept = y if x else None\nreturn Ours(x=x, y=kept, more=1)",
        "if x and y is None:\n    y = make()\nreturn Out(x=x, y=y)",
        "if y is None and x:\n    y = make()\nreturn Ours(x=x, y=y, more=1)",
    ),
    "a new local of what the patch computes in its own way": (
        "parts = split(x)\nsizes = measure(parts)\nfor layer in self.layers:\n    x = layer(x, sizes)\nreturn x",
        "x = gather(x)\nx = x + 1\nsizes = own(x)\nfor layer in self.layers:\n    x = layer(x, sizes)\nreturn x",
        "parts = split(x)\nsizes = measure(parts)\nmost = max(sizes)\n"
        "for layer in self.layers:\n    x = layer(x, sizes, most)\nreturn x",
        "x = gather(x)\nx = x + 1\nsizes = own(x)\nmost = max(sizes)\n"
        "for layer in self.layers:\n    x = layer(x, sizes, most)\nreturn x",
    ),
    "an annotation of a local that only upstream changes": (
        "out: Old = self.model(x, y=y)\nreturn out",
        "out: Old = self.model(x, y=y, mask=None)\nreturn out",
        "out: New = self.model(x, y=y, more=x)\nreturn out",
        "out: New = self.model(x, y=y, more=x, mask=None)\nreturn out",
    ),
}

CLASHES = {
    "upstream sets twice what the addition works on": (
        "a = f(x)\nb = g(a)\nreturn b",
        "a = f(x)\nb = g(a)\nb = gather(b)\nreturn b",
        "b, c = h(x, y)\nb, c = norm(b, c)\nreturn b",
    ),
    "upstream reads in between what the addition sets": (
        "a = f(x)\nb = g(a)\nreturn b",
        "a = f(x)\nb = g(a)\nb = gather(b)\nreturn b",
        "b = h(x, y, 1, 2, 3)\nself.seen = b\nreturn b",
    ),
    "upstream sets what a guard reads": (
        "a = f(x)\nb = g(a)\nreturn b",
        "if kernel.bound:\n    return kernel(x)\na = f(x)\nb = g(a)\nreturn b",
        "x = self.scale(x, y, 1)\nb = h(x)\nreturn b",
    ),
    "a guard where upstream refuses an input": (
        "return self.proj(x)",
        "if kernel.bound:\n    return kernel(x)\nreturn self.proj(x)",
        "if y is None:\n    raise ValueError(1)\nreturn self.proj(x)",
    ),
    "statements that the patch drops and upstream computes in another way": (
        "out = self.tower(x)\nparts = split(out.pooled)\nout.pooled = parts\nreturn out",
        "out = self.tower(x)\nreturn out",
        "out = self.tower(x)\nout.pooled = split(out.pooled, y)\nreturn out",
    ),
    "one operand of a sum": (
        "x = x + f(y)\nreturn x",
        "x = x + g(y)\nreturn x",
        "x = x + h(y)\nreturn x",
    ),
    "two operands of one condition": (
        "if x and y:\n    return 1",
        "if x and self.y:\n    return 1",
        "if self.x and y:\n    return 1",
    ),
    "a keyword that the patch passes in one place": (
        "loss = self.loss(x, size=1)\nreturn loss",
        "if y:\n    loss, a = self.loss(x, size=1)\nelse:\n    loss, a = self.loss(x, size=1, y=y)\nreturn loss",
        "loss = self.loss(x, size=1, y=y)\nreturn loss",
    ),
    "a field that upstream's result gets": (
        "return Output(loss=x, deltas=y.deltas)",
        "return OurOutput(loss=x, deltas=y.deltas, more=1)",
        "return Plain(loss=x, logits=y.logits)",
    ),
    "one attribute that both set": (
        "super().__init__()",
        "super().__init__()\nself.bias.dim = 1",
        "super().__init__()\nself.bias = Scorer(x)",
    ),
    "a new case that does what the one does that the patch leaves out": (
        CASES.format(b="B", more=""),
        CASES.format(b="B", more="").replace(CASE.format(b="B"), ""),
        CASES.format(b="B", more=CASE.format(b="D")),
    ),
    "a case that upstream drops and the patch changes": (
        CASES.format(b="B", more="elif isinstance(x, C):\n    copy(x)"),
        CASES.format(b="B", more="elif isinstance(x, C):\n    copy(x, 2)"),
        CASES.format(b="B", more=""),
    ),
    "arguments that both append": (
        "return f(x, y)",
        "return f(x, y, self.ours)",
        "return f(x, y, self.theirs)",
    ),
}


@pytest.mark.parametrize("name", MERGES)
def test_what_merges(name: str) -> None:
    base, ours, theirs, wanted = map(function, MERGES[name])
    merged = merge_definition(base, ours, theirs)
    assert not merged.clashes
    assert merged.text == wanted


def test_what_the_patch_takes_as_a_parameter_may_be_computed_otherwise() -> None:
    base, theirs = function("most = old(x)\nreturn f(x, most)"), function("most = new(x)\nreturn f(x, most)")
    ours = function("return f(x, most)", "def forward(self, x, most, y=None):")
    assert not merge_definition(base, ours, theirs).clashes
    assert merge_definition(base, function("return f(x, most)"), theirs).clashes


@pytest.mark.parametrize("name", CLASHES)
def test_what_is_left_to_a_person(name: str) -> None:
    base, ours, theirs = map(function, CLASHES[name])
    merged = merge_definition(base, ours, theirs)
    assert merged.clashes
    assert merged.text == ours


def test_a_parameter_of_a_method_in_a_replaced_class_is_followed_where_only_the_patch_reads_it() -> None:
    forward = "    def forward(self, x, weights):\n        return x * weights\n"
    base = f"class A:\n{forward}\n    def other(self, weights):\n        return weights\n"
    ours = base.replace("        return x", "        fused(weights)\n        return x")
    theirs = base.replace("x, weights", "x, scores").replace("x * weights", "x * scores")
    was, mine = rename_locals(base, ours, theirs)
    assert was == theirs
    assert mine == theirs.replace("        return x", "        fused(scores)\n        return x")


def test_a_local_that_loses_its_annotation_is_followed_under_its_new_name() -> None:
    base = function("out: Output = self.tower(x)\nparts = split(out.pooled)\nout.pooled = parts\nreturn out")
    ours = function("out: Output = self.tower(x)\nreturn out")
    theirs = function("outputs = self.tower(x)\noutputs.pooled = split(outputs.pooled)\nreturn outputs")
    was, mine = rename_locals(base, ours, theirs)
    assert merge_definition(was, mine, theirs).text == function("outputs = self.tower(x)\nreturn outputs")


def test_a_local_is_followed_that_both_versions_set_once() -> None:
    split = "parts = out.pooled\nparts = split(parts)\nout.pooled = parts\n"
    base = function(f"out: Output = self.tower(x, flag=True)\n{split}return out")
    ours = function("out: Output = self.tower(x, flag=True)\nreturn out")
    theirs = function("outputs = self.tower(x)\noutputs.pooled = split(outputs.pooled)\nreturn outputs")
    was, mine = rename_locals(base, ours, theirs)
    assert merge_definition(was, mine, theirs).text == function("outputs = self.tower(x)\nreturn outputs")
    again = theirs.replace("outputs = self", "outputs = None\n    outputs = self")
    assert rename_locals(base, ours, again) == (base, ours)


def test_a_parameter_that_the_patch_drops_may_get_another_annotation() -> None:
    base, ours, theirs = (
        function("return x", f"def forward(self, x{more}):") for more in (", y: FloatTensor", "", ", y: Tensor")
    )
    merged = merge_definition(base, ours, theirs)
    assert (merged.text, merged.clashes) == (ours, [])
    assert merge_definition(base, ours, theirs.replace("Tensor", "Tensor = None")).clashes


def test_a_local_that_upstream_dropped_goes_where_nothing_reads_it() -> None:
    text = function("if y:\n    x = x + 1\n    kept = None\nkept = x.sum()\nother = None\nreturn x")
    assert without_unread(text, {"kept"}) == function("if y:\n    x = x + 1\nkept = x.sum()\nother = None\nreturn x")
    read = text.replace("return x", "return x, kept")
    assert without_unread(read, {"kept"}) == read
