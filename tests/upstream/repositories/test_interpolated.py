"""References between values of a yaml config."""

from omni_kit.upstream.repositories.interpolated import interpolated

CONFIG = {
    "width": 64,
    "model": {
        "dim": "${width}",
        "inner": "${.dim}",
        "layers": 4,
        "kinds": '${eval:\'${.layers} // 2 * ["a", "b"]\'}',
        "heads": {"count": "${..layers}", "of": ["${model.inner}"]},
        "place": "${oc.env:HOME}",
        "missing": "${.nowhere}",
        "text": "run-${width}",
        "again": "${.again}",
        "computed": "${eval: ${.nowhere} + 1}",
    },
}


def test_references_are_replaced() -> None:
    model = interpolated(CONFIG)["model"]
    assert (model["dim"], model["inner"]) == (64, 64)
    assert model["kinds"] == ["a", "b", "a", "b"]
    assert model["heads"] == {"count": 4, "of": [64]}


def test_what_is_not_known_stays_as_written() -> None:
    model = interpolated(CONFIG)["model"]
    for name in ("place", "missing", "text", "again", "computed"):
        assert model[name] == CONFIG["model"][name]  # type: ignore[index]
