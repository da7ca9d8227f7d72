"""The agent loop: models and tools as a graph of recorded steps."""

from agentrun.agent.program import Program, Secrets, SetupError, prepare

__all__ = ["Program", "Secrets", "SetupError", "prepare"]
