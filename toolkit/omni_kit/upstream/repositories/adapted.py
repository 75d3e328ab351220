"""Classes that run as they are written only after their authors have called a method, or with arguments in a tuple."""

from omni_kit.pysource.classes import ClassRef
from omni_kit.upstream.repositories.unpacked_arguments import with_unpacked_forward
from omni_kit.upstream.repositories.unset_switches import with_switches_off


def adapted(cls: ClassRef) -> ClassRef:
    """Return a class that runs with arguments alone; the authors' side of a comparison runs the same text."""
    return with_unpacked_forward(with_switches_off(cls))
