"""Stored buffers in a low dtype: as diffusers' loader casts them, and not of other libraries' models."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from omni_kit.targets.veomni.runtime.saving import cast_stored_buffers  # noqa: E402


@pytest.mark.parametrize(("persistent", "cast"), [(True, True), (False, False)])
def test_stored_buffers_of_diffusers_are_cast(persistent: bool, cast: bool) -> None:
    from diffusers.models.modeling_utils import ModelMixin

    for kind, expected in ((ModelMixin, cast), (torch.nn.Module, False)):
        model = kind()
        model.register_buffer("table", torch.zeros(2), persistent=persistent)
        said = cast_stored_buffers(model, torch.bfloat16)
        assert (model.table.dtype == torch.bfloat16, "table" in said) == (expected, expected)
