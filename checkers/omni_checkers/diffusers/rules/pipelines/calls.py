"""Rules about a pipeline's `__call__`: DFU211 to DFU215."""

import ast
from collections.abc import Iterator

from omni_checkers.codediff.fingerprint import unpacks
from omni_checkers.diffusers.examples import LUMEN, PIPELINE, changed
from omni_checkers.diffusers.facts.pipelines import call_of, declared, methods_of, unwritten
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, keyword, last_name
from omni_kit.pysource.signatures import parameters
from omni_kit.pysource.source import SourceFile, dotted

_DRAWS = frozenset({"randn", "rand", "randint", "normal", "bernoulli", "multinomial", "randperm"})
_LIKE = frozenset({"randn_like", "rand_like", "randint_like"})
_LOOP = "        with self.progress_bar(total=len(timesteps)) as progress_bar:\n"
_STEP = "self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]"


class GeneratorReachesEveryDraw(Rule):
    """Pass the user's generator to every random draw of a pipeline.

    Draws are `randn_tensor`, torch's own functions, and samples of an autoencoder's distribution. NumPy and torch's
    `..._like` functions do not accept a generator. Methods of the pipeline, and functions imported from diffusers, that
    accept a generator must receive it.

    Why: two runs with equal seeds differ, so nobody can reproduce a bug report. A list of generators, one for each
    image of a batch, gives other images than single calls.

    Fine when: the draw does not affect the output.
    """

    id = "DFU211"
    name = "generator-reaches-every-draw"
    target = "diffusers"
    obligations = ("DIF-34",)
    BAD = (
        changed(PIPELINE, ("randn_tensor(shape, generator=generator, ", "randn_tensor(shape, ")),
        changed(
            PIPELINE,
            (
                "randn_tensor(shape, generator=generator, device=device, dtype=dtype)",
                "torch.randn(shape, device=device)",
            ),
        ),
    )
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            for function in methods_of(cls):
                for call in calls(function):
                    if (what := _draw(cls.source, call)) and not _generated(call):
                        yield at(cls.source, call, f"{what} without a generator: equal seeds give different outputs")
                    elif not what and (name := _kept_from(cls, call)):
                        yield at(cls.source, call, f"{name} accepts a generator, but the call does not pass one")


def _draw(source: SourceFile, call: ast.Call) -> str:
    """Return the name of a random draw; empty if the call draws nothing."""
    name = source.origin(call.func)
    package, _, last = name.rpartition(".")
    if last == "randn_tensor" or (package == "torch" and last in _DRAWS | _LIKE):
        return last
    if package == "numpy.random" and last != "RandomState" and last != "default_rng":
        return name
    sampled = isinstance(call.func, ast.Attribute) and call.func.attr == "sample"
    return "a sample of latent_dist" if sampled and last_name(_owner(call)) == "latent_dist" else ""


def _kept_from(cls: ClassRef, call: ast.Call) -> str:
    """Return a callee that takes a generator and gets none; empty if it gets one, or an option not to draw."""
    name = dotted(call.func) or ""
    own = name.startswith("self.") and name.count(".") == 1
    found = cls.method(last_name(call.func)) if own else None
    resolved = (found[0].source, found[1]) if found is not None else cls.source.resolve_function(name)
    if resolved is None or unpacks(call) or not _hands_on(resolved[1]):
        return ""
    place = parameters(resolved[1]).index("generator")
    given = keyword(call, "generator") or (call.args[place] if len(call.args) > place else ast.Constant(None))
    told = any(isinstance(getattr(word.value, "value", None), str) for word in call.keywords)
    return name if isinstance(given, ast.Constant) and given.value is None and not told else ""


def _hands_on(function: ast.FunctionDef) -> bool:
    """Return whether a function takes a generator and gives it to what draws."""
    return "generator" in parameters(function) and any(
        "generator" in {one.id for one in walked(given) if isinstance(one, ast.Name)}
        for call in calls(function)
        if last_name(call.func) not in ("isinstance", "len", "ValueError", "type")
        for given in [*call.args, *(word.value for word in call.keywords)]
    )


def _owner(call: ast.Call) -> ast.AST:
    return call.func.value if isinstance(call.func, ast.Attribute) else call


def _generated(call: ast.Call) -> bool:
    if keyword(call, "generator") is not None or any(word.arg is None for word in call.keywords):
        return True
    positional = {"randn_tensor": 1, "sample": 0}.get(last_name(call.func))
    return positional is not None and len(call.args) > positional


class LatentsCanBeAskedFor(Rule):
    """Skip decoding for `output_type="latent"`.

    Why: users who need latents, for example for an upscaler, pay for an unwanted decode and get images.

    Fine when: the pipeline has no latents to return.
    """

    id = "DFU212"
    name = "latents-can-be-asked-for"
    target = "diffusers"
    obligations = ("DIF-33",)
    BAD = (changed(PIPELINE, ('if output_type == "latent":', "if latents is None:")),)
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            call = call_of(cls)
            if call is None or not _decodes(call) or "output_type" not in parameters(call):
                continue
            asked = (node for node in walked(call) if isinstance(node, ast.Compare))
            if not any(
                isinstance(one, ast.Constant) and one.value == "latent" for node in asked for one in walked(node)
            ):
                yield at(
                    cls.source, call, f'{cls.node.name} decodes for every output_type: nothing checks for "latent"'
                )


def _decodes(call: ast.FunctionDef) -> bool:
    """Return whether the autoencoder decodes in `__call__` itself."""
    return any("vae" in (dotted(_owner(one)) or "").split(".") for one in calls(call, "decode"))


class LoopShowsProgress(Rule):
    """Run the loop over timesteps under `self.progress_bar`.

    Why: a request that takes minutes shows no progress, and `set_progress_bar_config` has no effect.

    Fine when: the loop has few iterations and each shows its own progress.
    """

    id = "DFU213"
    name = "loop-shows-progress"
    target = "diffusers"
    obligations = ("DIF-35",)
    BAD = (changed(PIPELINE, (_LOOP, "        if True:\n"), ("                progress_bar.update()\n", "")),)
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            call = call_of(cls)
            loop = next(_loops(call), None) if call is not None else None
            if call is not None and loop is not None and not any(calls(call, "progress_bar")):
                yield at(cls.source, loop, f"{cls.node.name} loops over timesteps without self.progress_bar")


def _loops(call: ast.FunctionDef) -> Iterator[ast.For]:
    """Yield the loops over timesteps: those in which a scheduler makes a step, or whose subject is called so."""
    for node in walked(call):
        if isinstance(node, ast.For):
            over = {last_name(one) for one in walked(node.iter)}
            steps = any("scheduler" in (dotted(_owner(one)) or "") for one in calls(node, "step"))
            if steps or "timesteps" in over:
                yield node


class SchedulerMakesTheSteps(Rule):
    """Let the scheduler compute each step of the loop over timesteps.

    Why: a hand-written step is right for one scheduler only. With another scheduler the user gets the output of the
    first one, or noise, without an error.

    Fine when: the pipeline has no scheduler that could compute the step, or the loop prepares something else.
    """

    id = "DFU214"
    name = "scheduler-makes-the-steps"
    target = "diffusers"
    obligations = ("DIF-16",)
    BAD = (changed(PIPELINE, (_STEP, "latents + noise_pred * self.scheduler.sigmas[i]")),)
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            call = call_of(cls)
            loop = next(_loops(call), None) if call is not None else None
            stepped = any(last_name(one).startswith("step") for one in calls(cls.node))
            if loop is not None and not stepped:
                yield at(cls.source, loop, f"{cls.node.name} loops over timesteps without calling the scheduler's step")


class ParametersHaveAnEffect(Rule):
    """Read every named parameter of `__call__`.

    A `__call__` that ends with NotImplementedError gets one finding, at that statement: its steps are not written.

    Why: the user sets a guidance scale, a generator or a callback, and nothing changes.

    Fine when: the parameter exists for interchangeable pipelines and its documentation says that it has no effect.
    """

    id = "DFU215"
    name = "parameters-have-an-effect"
    target = "diffusers"
    obligations = ("DIF-34",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (
        changed(PIPELINE, ("dtype, device, generator, latents\n", "dtype, device, None, latents\n")),
        changed(PIPELINE, ("        return_dict=True,\n", "        return_dict=True,\n        guidance_scale=4.0,\n")),
    )  # fmt: skip
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            if (end := unwritten(cls)) is not None:
                yield at(cls.source, end, f"{cls.node.name}.__call__ raises NotImplementedError: write its steps")
            call = call_of(cls)
            if call is None or len(call.body) < 3:
                continue
            read = {node.id for node in walked(call) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
            if "locals" in read:  # by which callbacks get tensors
                named = declared(cls, "_callback_tensor_inputs")
                read |= set(named[1]) if named is not None else set(parameters(call))
            for node in [*call.args.args[1:], *call.args.kwonlyargs]:
                if node.arg not in read:
                    yield at(cls.source, node, f"'{node.arg}' of {cls.node.name}.__call__ has no effect")
