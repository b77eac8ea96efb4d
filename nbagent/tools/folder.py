"""What ``list``, ``glob`` and ``grep`` share: the folder that they look into."""

from __future__ import annotations

from nbagent.permission.ask import Need
from nbagent.permission.path import path_needs
from nbagent.root import Place
from nbagent.tools.access import may_show, refused
from nbagent.tools.read import refuse_missing
from nbagent.tools.tool import Declaration, ToolContext


def declare_folder(
    tool: str, permission: str, spelled: str, context: ToolContext, subject: str = "", more: tuple[Need, ...] = ()
) -> Declaration:
    """A declaration for a look into a folder. ``subject``: what is looked for, for the title."""
    place = context.root.locate(spelled or ".")
    needs = (*path_needs(permission, place), *more)
    where = place.pattern if not subject else f"{subject} in {place.pattern}"
    title = f"{tool} {where}" if where != "." else tool
    if subject and place.pattern == ".":
        title = f"{tool} {subject}"
    notes = (f"{place.spelled} is a link: it leads to {place.pattern}",) if place.linked else ()
    if not refused(needs, context.rules) and may_show(place, context.rules):
        refuse_missing(place, context)
    return Declaration(title, needs, notes=notes, subject=place)


def settled_folder(spelled: str, declaration: Declaration, context: ToolContext) -> Place:
    place = declaration.subject if isinstance(declaration.subject, Place) else context.root.locate(spelled or ".")
    refuse_missing(place, context)
    return place


def pattern_of(place: Place, path: str) -> str:
    """What rules see of ``path`` below ``place``."""
    return path if place.pattern == "." else f"{place.pattern.rstrip('/')}/{path}"
