"""Kinds: one derivation, from signs with evidence."""

import pytest

from omni_kit.upstream.kinds import Kind, Signs, derive


@pytest.mark.parametrize(
    ("signs", "kind"),
    [
        (Signs(speaks="head"), Kind.llm),
        (Signs(speaks="head", experts="experts"), Kind.moe),
        (Signs(speaks="head", sees="vision"), Kind.vlm),
        (Signs(hears="audio"), Kind.vlm),
        (Signs(sees="vision", experts="experts"), Kind.vlm_moe),
        (Signs(sees="vision", hears="audio"), Kind.omni),
        (Signs(sees="vision", hears="audio", experts="experts"), Kind.omni_moe),
        (Signs(denoises="file"), Kind.dit),
        (Signs(assembles="file"), Kind.pipeline),
        (Signs(composes="file", assembles="file"), Kind.modular),
        (Signs(experts="experts"), Kind.other),
        (Signs(speaks="head", silent="an encoder"), Kind.other),
        (Signs(speaks="head", silent="an encoder", sees="vision"), Kind.vlm),
        (Signs(), Kind.other),
    ],
)
def test_each_kind_has_its_signs(signs: Signs, kind: Kind) -> None:
    found, evidence = derive(signs)
    assert found is kind
    assert evidence


def test_the_evidence_is_where_the_signs_were_read() -> None:
    assert derive(Signs(sees="config.json: vision_config", experts="Experts at a.py:3"))[1] == (
        "config.json: vision_config; Experts at a.py:3"
    )
