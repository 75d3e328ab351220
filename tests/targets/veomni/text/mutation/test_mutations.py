"""A decision hangs on what upstream's code computes: rewritings that torch cannot tell apart are decided alike."""

import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pytest

from omni_kit.upstream.transformers.models import UpstreamModel
from tests.conftest import Models
from tests.targets.veomni.text.mutation.rewritings import (
    CHANGING,
    KEEPING,
    SIGMOID,
    Mutant,
    Rewrite,
    applied,
    mutants,
    renamed,
)
from tests.targets.veomni.text.mutation.subjects import PATCHED, READ, Subject, subjects
from tests.targets.veomni.text.mutation.truth import DTYPES, EXACT, definitions, same

TYPES = [
    "llama", "mixtral", "qwen3_moe", "olmoe", "deepseek_v3", "glm4_moe", "gemma3_text", "phi3", "qwen2_moe", "smollm3",
    "granite", "ernie4_5_moe", "minimax_m2", "dots1", "exaone4", "hunyuan_v1_moe", "jamba", "flex_olmo", "lfm2_moe",
]  # fmt: skip
ATTENDING = ["llama", "gemma2", "qwen3_moe", "olmoe", "mixtral", "hunyuan_v1_moe"]
RIGHT = 0.98


@dataclass(frozen=True)
class Outcome:
    """One mutant: what torch says, and what was decided.

    Attributes:
        keeps: it computes what the function computed.
        before: what was decided about the function as it is.
    """

    name: str
    keeps: bool
    decision: str
    before: str

    @property
    def alike(self) -> bool:
        return self.decision == self.before

    @property
    def right(self) -> bool:
        return self.alike == self.keeps


def made(subject: Subject, rewritings: dict[str, Rewrite], rng: random.Random) -> Iterator[Mutant]:
    """Mutants of a function: each rewriting alone, names and one, and several in a row."""
    yield from mutants(subject.node, rewritings, rng)
    if rewritings is KEEPING:
        for names in (rng.sample(sorted(rewritings), 6) for _ in range(3)):
            node, done = renamed(subject.node, rng), ["renamed"]
            for name in names:
                if (mutant := applied(node, name, rewritings[name], rng)) is not None:
                    node, done = mutant.node, [*done, name]
            yield Mutant(" + ".join(done), node)


def outcomes(
    model: UpstreamModel, rewritings: dict[str, Rewrite], rng: random.Random, share: float,
    sites: Collection[str] = PATCHED,
) -> list[Outcome]:  # fmt: skip
    """What becomes of mutants of a model's functions; of a share of them, drawn."""
    found: list[Outcome] = []
    for subject in subjects(model, sites):
        original = definitions(model.source.module, subject.definitions(model))
        before = subject.decision(model)
        for mutant in made(subject, rewritings, rng):
            if rng.random() > share:
                continue
            mutated = subject.with_node(mutant.node)
            names = definitions(model.source.module, subject.definitions(mutated))
            rounds = subject.site not in READ and SIGMOID not in mutant.rewriting
            keeps = same(original, names, subject.call, DTYPES if rounds else EXACT)
            name = f"{model.name} {subject.owner or subject.node.name}: {mutant.rewriting}"
            if keeps is not None:
                found.append(Outcome(name, keeps, subject.decision(mutated), before))
    return found


def wrong(found: list[Outcome]) -> list[str]:
    return [f"{one.name}: torch says {'same' if one.keeps else 'other'}, decided {one.decision}"
            for one in found if not one.right]  # fmt: skip


def report(found: list[Outcome], kind: str) -> str:
    counts = Counter((one.keeps, one.right) for one in found)
    right = sum(count for (_, fine), count in counts.items() if fine)
    return f"{kind}: {right} of {len(found)} right, {counts[False, False]} of changed meaning patched"


@pytest.mark.sweep
@pytest.mark.timeout(3600)  # hundreds of mutants, each judged by running it
@pytest.mark.parametrize(("kind", "rewritings", "least"), [("keeping", KEEPING, 200), ("changing", CHANGING, 100)])
def test_rewritings_of_many_models(model: Models, kind: str, rewritings: dict[str, Rewrite], least: int) -> None:
    rng = random.Random(7)
    found = [one for name in TYPES for one in outcomes(model(name), rewritings, rng, 1.0)]
    print(report(found, kind))
    assert len(found) >= least
    assert not [one.name for one in found if not one.keeps and one.alike]
    assert len(wrong(found)) <= (1 - RIGHT) * len(found), "\n".join(wrong(found))


@pytest.mark.sweep
def test_a_sample_of_rewritten_attention_and_routing(model: Models) -> None:
    rng = random.Random(32)
    for kind, rewritings in (("keeping", KEEPING), ("changing", CHANGING)):
        found = [one for name in ("llama", "mixtral") for one in outcomes(model(name), rewritings, rng, 0.2, READ)]
        assert len(found) >= 5, kind
        assert not wrong(found), report(found, kind)


@pytest.mark.sweep
@pytest.mark.parametrize(("kind", "rewritings"), [("keeping", KEEPING), ("changing", CHANGING)])
def test_rewritten_attention_and_routing_of_many_models(
    model: Models, kind: str, rewritings: dict[str, Rewrite]
) -> None:
    rng = random.Random(8)
    found = [one for name in ATTENDING for one in outcomes(model(name), rewritings, rng, 1.0, READ)]
    print(report(found, kind))
    assert len(found) >= 60
    assert not [one.name for one in found if not one.keeps and one.alike]
    assert len(wrong(found)) <= (1 - RIGHT) * len(found), "\n".join(wrong(found))
