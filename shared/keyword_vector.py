"""How terms and their frequencies are kept in a tsvector: written by ingestion, read by retrieval.

A tsvector knows where a word stands, not how often it occurs; a term that occurs n times therefore gets the positions 1..n, up to
MAX_FREQUENCY, and a term that occurs once gets none, which saves four bytes a term. BM25 loses next to nothing by the limit: it
gives a term that occurs 16 times over 90 % of the most that any number of occurrences could earn.

PostgreSQL's limits (a lexeme under 2 KB, 255 positions of it, positions under 16,384, a vector under 1 MB) are out of reach for terms of up
to 64 characters from chunks of up to 20,000.
"""

from collections.abc import Mapping

MAX_FREQUENCY = 16

_POSITIONS = ["", ""] + [":" + ",".join(map(str, range(1, n + 1))) for n in range(2, MAX_FREQUENCY + 1)]


def keyword_vector_text(terms: Mapping[str, int]) -> str:
    """A `tsvector` literal, to be cast by PostgreSQL, of terms and how often each occurs (at least once)."""
    return " ".join(_quoted(term) + _POSITIONS[min(count, MAX_FREQUENCY)] for term, count in terms.items())


def keyword_query_text(term: str) -> str:
    """A `tsquery` literal that matches the vectors that hold this term."""
    return _quoted(term)


def _quoted(term: str) -> str:
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"
