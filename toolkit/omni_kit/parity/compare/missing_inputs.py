"""Tells a module that goes wrong by itself from one that was not given what upstream's module was given.

A mask that is dropped on its way reaches nobody: no module receives anything wrong, and the first one that should
have had it answers wrongly. So that module is asked again with what it lacks; if it then answers right, whoever did
not hand it on is to blame.
"""

from omni_kit.parity.compare.modules import Blame, Compared, first_forward
from omni_kit.parity.compare.trace import ModuleCall, fits


def lacking(replay: Compared, call: ModuleCall) -> list[str]:
    """Return the tensors that went into upstream's module and, in their size, did not go into the candidate's.

    A whole model is called by nobody who could withhold something.
    """
    number = replay.partner(call)
    if number is None or call.parent < 0:
        return []
    tensors, upstream = replay.candidate.tensors, replay.reference
    found = []
    for name in upstream.calls[number].inputs:
        mine, theirs = tensors.get(f"{call.number}.in.{name}"), upstream.tensors[f"{number}.in.{name}"]
        if mine is None or not fits(mine.shape, theirs.shape):
            found.append(name)
    return found


def caller_at_fault(replay: Compared, blame: Blame, completed: Compared, free: Compared) -> Blame:
    """Return the module that withholds something, if `blame` is right once it has it; else `blame`.

    Args:
        completed: a replay in which every module was also given what it lacks.
    """
    again = first_forward(completed, free)
    if again is not None and again.call.number <= blame.call.number:
        return blame
    call, names = blame.call, lacking(replay, blame.call)
    while more := lacking(replay, parent := replay.candidate.calls[call.parent]):
        call, names = parent, more
    around = replay.paired_around(parent)
    return Blame(around, blame.added, f"its input to {call.module}, without upstream's {', '.join(names)}")
