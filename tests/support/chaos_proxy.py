"""The proxy, armed for the n-th statement of a kind.

with NthProxy(dsn) as proxy:
    proxy.hold_nth(2, "INSERT INTO run_log")   # the first one passes
"""

from __future__ import annotations

from tests.support.proxy import Fault, Proxy


class NthProxy(Proxy):
    """See the module's docstring."""

    def __init__(self, target_dsn: str) -> None:
        super().__init__(target_dsn)
        self._passing = 0
        self._kind = ""

    def hold_nth(self, number: int, matching: str) -> None:
        """Holds the `number`-th statement (from 1) from now on that holds `matching`."""
        self._passing, self._kind = number - 1, matching
        self.hold(matching)

    def take(self, statement: str) -> Fault | None:
        if self._passing and self._kind in statement:
            self._passing -= 1
            self.statements.append(statement)
            return None
        return super().take(statement)
