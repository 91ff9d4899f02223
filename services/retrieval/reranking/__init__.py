"""Rerankers: a second, closer look at the first candidates of a search."""
