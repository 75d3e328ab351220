"""Would it have been noticed? Has the candidate's stages make mistakes, one after the other, and asks the level."""

import shutil
from collections.abc import Callable

from omni_kit.isolation.worker import StepError
from omni_kit.parity.case import Case
from omni_kit.parity.compare.files import load_tensors, same_tensors
from omni_kit.parity.levels import judge
from omni_kit.parity.levels.stages import Stages, compared_stages, first_stages
from omni_kit.parity.processes.outcomes import CANDIDATE
from omni_kit.parity.report.report import InjectionResult, Proof, proof_of
from omni_kit.targets.sides import StageFault


def prove_stages(case: Case, say: Callable[[str], None] = lambda line: None) -> Proof | None:
    """Prove the comparison by stages: a mistake is located if the first wrong stage is its own."""
    if (found := judge(Stages.name, case)).status != "pass":
        case.note(f"no fault was injected: {Stages.name} already fails without a fault ({found.reason})")
        return None
    faults, planted = case.pair.mistakes(), []
    for done, fault in enumerate(faults, 1):
        planted.append(_try(case, fault))
        say(f"injected {done} of {len(faults)}: {fault.kind}: {planted[-1]}")
    return proof_of(planted)


def _try(case: Case, fault: StageFault) -> InjectionResult:
    name, stage = f"{fault.kind} ({fault.what})", fault.stages[0].strip()
    out = case.pair.where / CANDIDATE / "mistaken"
    try:
        case.pair.run_mistaken(fault.kind, out)
        answers = load_tensors(out / "outputs.safetensors")
    except StepError as error:
        if not error.blames_candidate:
            raise
        named = any(word in str(error) for word in stage.split())
        return InjectionResult(name, fault.kind, stage, detected_by=("error",), blamed=str(error), located=named)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if same_tensors(answers, case.evidence.results("outputs")):
        return InjectionResult(name, fault.kind, stage, idle=True)
    firsts = first_stages(compared_stages(case, answers))
    blamed = ", ".join(dict.fromkeys(firsts.values()))
    located = bool(firsts) and all(first.startswith(fault.stages) for first in firsts.values())
    return InjectionResult(name, fault.kind, stage, (Stages.name,) if firsts else (), blamed, located)
