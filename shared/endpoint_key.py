"""The key of an HTTP endpoint that an operator names: the file says which environment variable holds it, and never the key itself."""

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr


class WithKey(BaseModel):
    """An entry of a file of models or tools. `api_key` is the value of the variable `api_key_env`, when it is set."""

    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    api_key: SecretStr | None = None

    @property
    def problem(self) -> str | None:
        """Why this entry can't be used now, or None."""
        if not self.api_key_env:
            return None
        if self.api_key is None:
            return f"environment variable {self.api_key_env} is not set"
        key = self.api_key.get_secret_value()
        if not (key.isascii() and key.isprintable()):
            return f"environment variable {self.api_key_env} holds characters that no HTTP header can carry"
        return None
