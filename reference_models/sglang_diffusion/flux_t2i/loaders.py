"""Load components with the classes of the libraries that they are published for."""

import diffusers
import transformers
from sglang.multimodal_gen.runtime.loader.component_loaders.component_loader import ComponentLoader
from sglang.multimodal_gen.runtime.loader.component_loaders.scheduler_loader import SchedulerLoader
from sglang.multimodal_gen.runtime.utils.precision import resolve_component_precision


class UpstreamLoader(ComponentLoader):
    """A tokenizer, a processor, or an encoder, of the class that model_index.json names."""

    # diffusers saves its own subclasses of encoders as its own
    expected_library = ("diffusers", "transformers")

    def load_customized(self, component_model_path, server_args, component_name):
        """Load each encoder in the precision from the pipeline's config."""
        found = getattr(transformers, self.component_architecture, None) or getattr(
            diffusers, self.component_architecture
        )
        if not issubclass(found, transformers.PreTrainedModel):
            return found.from_pretrained(component_model_path)
        dtype = resolve_component_precision(server_args, component_name)
        return found.from_pretrained(component_model_path, torch_dtype=dtype)


class UpstreamSchedulerLoader(SchedulerLoader):
    """diffusers' own scheduler, unless SGLang's of that name takes the same steps: others differ in their sigmas."""

    component_names = []
    same_steps = ("FlowMatchEulerDiscreteScheduler",)

    def load_customized(self, component_model_path, server_args, component_name):
        """The class that model_index.json names."""
        if self.component_architecture in self.same_steps:
            return super().load_customized(component_model_path, server_args, component_name)
        return getattr(diffusers, self.component_architecture).from_pretrained(component_model_path)
