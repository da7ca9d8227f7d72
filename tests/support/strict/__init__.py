"""Model providers that know what they said: see `ledger`."""
