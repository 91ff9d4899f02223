"""A small local server that speaks the OpenAI chat protocol and answers by rule.

It is no language model and says so: it decides when to call KnowledgeTool and answers by quoting what that found, so that
ChatMind works without a key and its tests are deterministic.
"""

MODEL_ID = "chatmind-offline"
