"""BrokenRule: the error for a component that breaks its contract."""

from enginecore.errors import InvariantError


class BrokenRule(InvariantError):
    """A component does not do what its interface says.

    Attributes:
        kind: Kind of the component.
        rule: Name of the rule; the conformance kit has a check of this name.
        seen: The event that breaks the rule, in words.
    """

    def __init__(self, kind: str, rule: str, seen: str) -> None:
        super().__init__(f"the {kind} breaks the rule {rule!r}: {seen}")
        self.kind = kind
        self.rule = rule
        self.seen = seen
