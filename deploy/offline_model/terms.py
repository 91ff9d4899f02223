"""The words that two texts are compared by: Latin words and identifiers, and pairs of Chinese characters."""

import re

_LATIN = re.compile(r"[a-z0-9][a-z0-9_]*")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+")
# What questions are asked with rather than about.
_HAN_FILLERS = re.compile(
    r"请问|什么|哪些|哪个|哪里|怎么样|怎么|如何|多少|多久|多长|为什么|是否|可以|能否|能不能|有没有|一下|告诉我|介绍|我们|你们|"
    r"这个|那个|这些|那些|需要|以及|里面|[的了吗呢吧是有在和与或及我你他它]"
)
_ENGLISH_FILLERS = """
    a about an and any are as at be been by can could did do does for from give had has have he her his how i if in into is it its
    list long many me much my of often on or our please she should show so tell than that the their them then there these they
    this those to us was we were what when where which who whose why will with would you your
"""
_FILLERS = frozenset(_ENGLISH_FILLERS.split())
# Words of database designs, whose identifiers and DDL are English in Chinese documents too.
_TRANSLATIONS = {
    "建表": ("create", "table"),
    "索引": ("index",),
    "主键": ("primary", "key"),
    "外键": ("foreign", "key"),
}


def is_chinese(text: str) -> bool:
    return _HAN.search(text) is not None


def terms(text: str) -> frozenset[str]:
    """The distinct terms of a text, without fillers; an identifier counts whole and by its parts."""
    text = text.lower()
    found: set[str] = set()
    for word in _LATIN.findall(text):
        found.update(_stem(part) for part in {word, *word.split("_")} if part and part not in _FILLERS)
    for run in _HAN.findall(_HAN_FILLERS.sub(" ", text)):
        found.update(run[at : at + 2] for at in range(len(run) - 1))
        if len(run) == 1:
            found.add(run)
    for chinese, english in _TRANSLATIONS.items():
        if chinese in found:
            found.update(english)
    return frozenset(found)


def token_count(text: str) -> int:
    """About how many tokens a language model would count."""
    return len(tokens(text))


def tokens(text: str) -> list[str]:
    """The text cut into small pieces, which joined give it back."""
    return re.findall(r"\s*[\u3400-\u9fff]|\s*[A-Za-z0-9_]{1,12}|\s*[^\sA-Za-z0-9_\u3400-\u9fff]|\s+", text)


def _stem(word: str) -> str:
    """English plurals and their singulars meet: policies, policy; addresses, address; orders, order."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
