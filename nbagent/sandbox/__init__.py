"""Run a process that can write only where it is told. See docs/explanation/security.md."""

from nbagent.sandbox.environment import child_environment, confined_environment, unwalled_environment
from nbagent.sandbox.find import find_wall
from nbagent.sandbox.places import existing_places, secret_places
from nbagent.sandbox.process import Outcome, run_command
from nbagent.sandbox.wall import Confinement, Launch, NoWall, Wall

__all__ = [
    "Confinement",
    "Launch",
    "NoWall",
    "Outcome",
    "Wall",
    "child_environment",
    "confined_environment",
    "existing_places",
    "find_wall",
    "run_command",
    "secret_places",
    "unwalled_environment",
]
