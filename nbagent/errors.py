"""The error tree. Who must act is in the class, what to do is in the sentence.

::

    NbagentError                 every error that nbagent raises on purpose
    ├── PersonError              the person must act; the message is one plain sentence with the next step
    │   ├── ConfigError          a settings file, a key in it, an option or an environment variable
    │   ├── RootError            the project root is refused, missing or cannot be read
    │   ├── PlanError            a plan that cannot be used: not approved, changed since, not inside the root
    │   ├── StoreError           the session database cannot be used
    │   ├── CassetteError        a cassette is malformed, stale or exhausted
    │   └── SessionError         no such session, run by another kernel, failed too often
    ├── ModelError               the model must act; the message becomes the tool's result and the run goes on
    │   ├── ArgumentError        wrong arguments: says what to send instead
    │   ├── Denied               a rule said no; carries the rule
    │   ├── Rejected             a person said no, with feedback (the run goes on) or without (it stops)
    │   └── ToolError            anything else that went wrong inside a tool
    ├── ProviderError            the model server; see its fields for what may be tried again
    │   ├── ContextOverflow      the request is larger than the model's window
    │   └── StreamDropped        the answer ended before it was complete
    └── Stopped                  a person pressed Stop

Anything else that escapes is a bug in nbagent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbagent.permission.ruleset import Rule


class NbagentError(Exception):
    """Base of every error that nbagent raises on purpose. ``str(error)`` is fit to be shown."""


class PersonError(NbagentError):
    """The person must act; the message says what to do."""


class ConfigError(PersonError):
    """A settings file, key, option or environment variable is wrong."""


class RootError(PersonError):
    """The project root is refused, missing or cannot be read."""


class PlanError(PersonError):
    """A plan cannot be used as asked."""


class StoreError(PersonError):
    """The session database cannot be used."""


class CassetteError(PersonError):
    """A cassette is malformed, stale or has no answer left."""


class SessionError(PersonError):
    """A session cannot be opened or run."""


class ModelError(NbagentError):
    """The model must act; the message becomes the tool's result."""


class ArgumentError(ModelError):
    """The arguments of a tool call are wrong; the message says what to send instead."""


class ToolError(ModelError):
    """A tool could not do what it was asked."""


class Denied(ModelError):
    """A rule refused the call. ``rule`` is the one that won (None: nothing matched, nobody to ask)."""

    def __init__(self, message: str, rule: Rule | None = None, permission: str = "", pattern: str = "") -> None:
        super().__init__(message)
        self.rule = rule
        self.permission = permission
        self.pattern = pattern


class Rejected(ModelError):
    """A person refused the call. Without feedback the run stops; with it the model reads it and goes on."""

    def __init__(self, message: str, feedback: str = "") -> None:
        super().__init__(message)
        self.feedback = feedback


class ProviderError(NbagentError):
    """The model server failed.

    ``retryable``: the same request may succeed later. ``retry_after``: seconds the server asked for.
    ``status``: HTTP status or None. ``code``: the server's own code or "".
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        code: str = "",
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
        self.code = code


class ContextOverflow(ProviderError):
    """The request is larger than the model's window."""


class StreamDropped(ProviderError):
    """The connection ended before the answer was complete. Always retryable."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class Stopped(NbagentError):
    """A person pressed Stop."""
