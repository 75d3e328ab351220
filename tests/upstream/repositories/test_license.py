"""Notices of copyright and license, which code of the authors keeps when it is taken."""

from pathlib import Path

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import read_source
from omni_kit.targets.diffusers.porting.port import port
from omni_kit.upstream.repositories.license import header_of, is_non_commercial, license_of, names_license
from omni_kit.upstream.repositories.reference import Reference, find_reference

NET = (
    "from torch import nn\n{imported}\n\nclass Net(nn.Module):\n    def __init__(self, width=8):\n"
    "        super().__init__()\n        self.inner = {inner}(width, width)\n\n"
    "    def forward(self, x, t):\n        return self.inner(x)\n"
)
LAYER = "from torch import nn\n\n\nclass Layer(nn.Linear):\n    pass\n"
MIT = "MIT License\n\nCopyright (c) 2031 A. Author\n\nPermission is hereby granted, …\n"
APACHE = (
    "\n        Apache License\n  Version 2.0\n\n  copyright license to reproduce\n   Copyright [yyyy] [name of owner]\n"
)


def reference(root: Path, head: str = "", layer: str = "", owned: str = "") -> Reference:
    imported = "from layers import Layer\n" if layer else ""
    net = head + NET.format(imported=imported, inner="Layer" if layer else "nn.Linear")
    for name, text in {"nets/net.py": net, "layers.py": layer, "LICENSE": owned, "README.md": "-"}.items():
        if text:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
    return find_reference(f"{root / 'nets/net.py'}::Net")


@pytest.mark.parametrize(("head", "notice"), [
    ("#!/usr/bin/env python\n# Copyright (c) X Inc.\n# All rights reserved.\n\n# flake8: noqa\n",
     "# Copyright (c) X Inc.\n# All rights reserved.\n\n"),
    ("# A net.\n\n# Copyright X.\n# See https://x.y\n\n# SPDX-License-Identifier: MIT\n",
     "# Copyright X.\n# See https://x.y\n#\n# SPDX-License-Identifier: MIT\n\n"),
    ('"""A net.\n\nThis work is licensed under Y.\n\nBy Z.\n"""\n', "# This work is licensed under Y.\n\n"),
    ("# A net of ours.\n", ""),
    ('"""A net."""\n\nimport torch  # Copyright of torch\n', ""),
])  # fmt: skip
def test_the_notice_at_the_head_of_a_file_is_kept(head: str, notice: str, tmp_path: Path) -> None:
    read = reference(tmp_path, head)
    assert header_of(read.cls.source) == notice


@pytest.mark.parametrize(("text", "header"), [
    (MIT, "# Copyright (c) 2031 A. Author\n# Adapted from nets/net.py. License: MIT License\n\n"),
    ("Copyright (c) 2031 A. Author\n\nPermission is hereby granted, free of charge, to\n",
     "# Copyright (c) 2031 A. Author\n# Adapted from nets/net.py. License: MIT License\n\n"),
    (APACHE, "# Adapted from nets/net.py. License: Apache License\n\n"),
])  # fmt: skip
def test_a_file_without_a_notice_is_under_the_license_of_its_repository(
    text: str,
    header: str,
    tmp_path: Path,
) -> None:
    read = reference(tmp_path, owned=text)
    assert header_of(read.cls.source) == header
    assert (found := license_of(read.cls.source)) is not None
    assert found.where == "LICENSE:1"


@pytest.mark.parametrize(("text", "names", "forbids"), [
    ("# This work is licensed under a Creative Commons\n# Attribution-NonCommercial 4.0", True, True),
    ("# SPDX-License-Identifier: CC-BY-NC-SA-4.0", True, True), ("# For research purposes only.", False, True),
    ("# Licensed under the Apache License, 2.0", True, False), ("# Copyright (c) Commercial Inc.", False, False),
])  # fmt: skip
def test_a_notice_may_name_a_license_and_forbid_commercial_use(text: str, names: bool, forbids: bool) -> None:
    assert (names_license(text), is_non_commercial(text)) == (names, forbids)


def test_a_repository_may_have_no_license(tmp_path: Path) -> None:
    read = reference(tmp_path)
    assert license_of(read.cls.source) is None
    assert not header_of(read.cls.source)


def test_a_port_begins_with_the_notices_of_the_files_that_it_is_made_of(tmp_path: Path) -> None:
    read = reference(tmp_path, "# Copyright X\n", f"# Copyright Y\n{LAYER}", MIT)
    text = port(read, "Net", find_library("diffusers"), "diffusers").text
    assert text.startswith("# Copyright X\n#\n# Copyright Y\n\nimport torch")


def test_a_scheduler_of_our_own_is_under_no_license_of_the_authors() -> None:
    """Ports get a copy of one, whose file is none of their repository."""
    library = find_library("diffusers")
    source = read_source(library, library.root / "schedulers" / "scheduling_heun_discrete.py")
    assert license_of(source) is None
