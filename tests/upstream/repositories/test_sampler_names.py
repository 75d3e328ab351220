"""Names of samplers: with a module or a class where another one has the same."""

import pytest

from omni_kit.upstream.repositories.sampler_names import is_named, short_names

SAMPLERS = ["run.text.Video.generate", "run.image.Video.generate", "run.image.Still.generate", "run.sample"]


@pytest.mark.parametrize(("given", "found"), [
    ("generate", [0, 1, 2]), ("Video.generate", [0, 1]), ("text.generate", [0]), ("image.Video.generate", [1]),
    ("Still", []), ("sample", [3]), ("other.sample", []), ("run.sample", [3]),
])  # fmt: skip
def test_a_name_may_lack_the_module_or_the_class(given: str, found: list[int]) -> None:
    assert [at for at, one in enumerate(SAMPLERS) if is_named(one, given)] == found


def test_of_each_the_shortest_name_that_no_other_has() -> None:
    expected = ["text.Video.generate", "image.Video.generate", "Still.generate", "sample"]
    assert short_names(SAMPLERS) == expected
    assert [[is_named(one, name) for one in SAMPLERS].count(True) for name in expected] == [1] * 4
