"""The version of nbagent, where everything can import it."""

__version__ = "0.1.0"
