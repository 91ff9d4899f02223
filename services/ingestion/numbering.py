"""The numbers that stand before a heading's words: "3.1 订单表", "第三章 订单", "IV. Results"."""

import re

_HAN = "〇零一二三四五六七八九十百千两"
_NUMBERING = re.compile(
    rf"""(?:
      \d{{1,3}}(?:\.\d{{1,3}})+ (?:[.．)）、:：]\s* | \s+ | (?=[㐀-鿿]))      # 3.1  3.1.2)  3.1订单表
    | \d{{1,3}} (?:[)）、．:：]\s* | \.(?:\s+ | (?=[㐀-鿿])))                 # 1)  1、 1.
    | [(（] (?:\d{{1,3}} | [{_HAN}]{{1,4}} | [A-Za-z]) [)）] \s*              # (1)  （一）
    | [{_HAN}]{{1,4}} [、．.] \s*                                            # 一、
    | 第 \s? (?:\d{{1,4}} | [{_HAN}]{{1,6}}) \s?
      (?: 章 \s*[:：、.．·—-]?\s* | (?:[节節篇卷回条條讲講课課编編]|部分?) (?:\s+ | \s*[:：、.．·—]\s*) )
    | (?:chapter|section|part|appendix) \s+ (?:\d{{1,3}}(?:\.\d{{1,3}})*|[IVXLC]{{1,6}}|[A-Z]) \s*[:.—–-]\s*
    | [IVX]{{1,5}} [.、)] \s+                                                # IV.
    | [A-Za-z] (?: [.)] \s+ | (?:\.\d{{1,3}})+ \.? \s+ )                      # A.  b)  A.1
    | §\s? \d{{1,3}}(?:\.\d{{1,3}})* \s+
    | [①-⑳] \s*
    )
    (?=[^\W\d_]|[《“「『"'`$_@])                                             # words must follow
    """,
    re.VERBOSE | re.IGNORECASE,
)


def strip_numbering(heading: str) -> str:
    """Return the heading without its leading number; unchanged where nothing but a number or a date would be left.

    A bare integer stays, because "5 分钟上手" counts minutes, and so does what isn't followed by words: "1.0.0 (2024)".
    """
    match = _NUMBERING.match(heading)
    return heading[match.end() :] if match else heading
