"""The project root, and places in the file system as they really are.

``Root.locate`` turns any spelling of a path into a ``Place``: resolved, judged by its real path, and opened through a
directory handle so that a link swapped between decision and act changes nothing.
"""

from nbagent.root.handle import Handle
from nbagent.root.resolve import Disk, resolve
from nbagent.root.root import Place, Root
from nbagent.root.windows import windows_pattern, windows_spelling

__all__ = ["Disk", "Handle", "Place", "Root", "resolve", "windows_pattern", "windows_spelling"]
