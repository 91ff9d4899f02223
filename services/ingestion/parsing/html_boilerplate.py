"""What of a page isn't its text: what browsers don't show, and menus, heads and feet where the markup says so.

Nothing is guessed by density of links or by length, because what is lost can't be found.
"""

import re
from collections.abc import Iterator
from typing import Final

from lxml import etree

_NEVER_SHOWN: Final = (
    *(
        "script",
        "style",
        "template",
        "noscript",
        "head",
        "iframe",
        "object",
        "embed",
        "applet",
        "audio",
        "video",
        "canvas",
    ),
    *("svg", "math", "button", "select", "datalist", "input", "textarea", "rt", "rp", "noframes"),
)
# "[edit]" and "¶" behind headings, and the other languages of a wiki's page.
_CHROME_CLASSES: Final = ("mw-editsection", "headerlink", "interlanguage-link", "mw-jump-link")
_HIDDEN = etree.XPath(
    "//*[@hidden or @aria-hidden='true' or contains(@style, 'none') or contains(@style, 'hidden')"
    + "".join(f" or contains(concat(' ', normalize-space(@class), ' '), ' {name} ')" for name in _CHROME_CLASSES)
    + "]"
)
_HIDDEN_STYLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_WITH_ROLE = etree.XPath("//*[@role]")
_FRAMES: Final = ("header", "footer", "aside")
_FRAME_ROLES: Final = frozenset({"banner", "contentinfo", "complementary"})
_MENUS: Final = ("nav", "search")
_MENU_ROLES: Final = frozenset({"navigation", "search", "menu", "menubar", "toolbar"})
_LEAST_CHARS: Final = 200
_LEAST_SHARE: Final = 0.1


def left_out(root: etree._Element) -> frozenset[etree._Element]:
    """Return the elements to leave out with all that is in them.

    Menus, heads and feet stay where next to nothing would be left without them.
    """
    hidden = set(root.iter(*_NEVER_SHOWN)) | {element for element in _found(_HIDDEN, root) if _is_hidden(element)}
    frames = set(_frames(root))
    total = _text_length(root) - _length_of_all(hidden)
    kept = _text_length(root) - _length_of_all(hidden | frames)
    enough = kept >= min(_LEAST_CHARS, total / 2) or kept >= total * _LEAST_SHARE
    return frozenset(hidden | frames if enough else hidden)


def _found(path: etree.XPath, root: etree._Element) -> Iterator[etree._Element]:
    found = path(root)
    return (
        (element for element in found if isinstance(element, etree._Element)) if isinstance(found, list) else iter(())
    )


def _is_hidden(element: etree._Element) -> bool:
    if element.get("role") == "tabpanel":  # panels of tabs are hidden in turn
        return False
    if element.get("hidden", "until-found") != "until-found" or element.get("aria-hidden") == "true":
        return True
    is_chrome = not set(_CHROME_CLASSES).isdisjoint(element.get("class", "").split())
    return is_chrome or _HIDDEN_STYLE.search(element.get("style", "")) is not None


def _frames(root: etree._Element) -> Iterator[etree._Element]:
    """Yield menus, and the head, foot and margins of the page; those of an article belong to it."""
    yield from root.iter(*_MENUS)
    around = list(root.iter(*_FRAMES))
    for element in _found(_WITH_ROLE, root):
        if element.get("role") in _MENU_ROLES:
            yield element
        elif element.get("role") in _FRAME_ROLES:
            around.append(element)
    yield from (element for element in around if _is_around_text(element))


def _is_around_text(element: etree._Element) -> bool:
    is_inside = next(element.iterancestors("main", "article", "section"), None) is not None
    return not is_inside and next(element.iter("h1", "main", "article"), None) is None


def _length_of_all(elements: set[etree._Element]) -> int:
    """Return the length of the text in the elements; what is inside another of them counts once."""
    outermost = (one for one in elements if not any(ancestor in elements for ancestor in one.iterancestors()))
    return sum(map(_text_length, outermost))


def _text_length(element: etree._Element) -> int:
    """Return how many characters stand in an element, runs of white space as one or none."""
    return sum(len(text.strip()) for text in element.itertext())
