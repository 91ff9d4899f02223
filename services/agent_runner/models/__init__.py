"""The chat model behind the agent: types and errors (pure), the wire format, and the client."""
