"""All that `agentrun.log.store.LogStore` promises, as tests.

A subclass whose fixture `opener` gives a `scenarios.Opener` holds its store to them.
"""

from __future__ import annotations

from tests.contract.log_contract import LogContract
from tests.contract.run_contract import RunContract


class StoreContract(RunContract, LogContract):
    """See the module's docstring."""
