"""How much of one thing this gateway does at once, for a tenant and in all: what is done for a long time and costs memory meanwhile."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from services.gateway.refusals import Refusal

_RETRY_SECONDS = 2


class Slots:
    """At most so many at once. `code` is that of the refusal for a tenant that has all of its own, `what` is said in it."""

    def __init__(self, per_tenant: int, in_all: int, code: str, what: str) -> None:
        self._per_tenant = per_tenant
        self._in_all = in_all
        self._code = code
        self._message = f"Too many {what} at once."
        self._of_tenant: Counter[UUID] = Counter()

    @contextmanager
    def one_of(self, tenant_id: UUID) -> Iterator[None]:
        """One of them. Raises Refusal."""
        if self._of_tenant[tenant_id] >= self._per_tenant:
            raise Refusal(self._code, self._message, retry_after=_RETRY_SECONDS)
        if self._of_tenant.total() >= self._in_all:
            raise Refusal("unavailable", self._message, retry_after=_RETRY_SECONDS)
        self._of_tenant[tenant_id] += 1
        try:
            yield
        finally:
            self._of_tenant[tenant_id] -= 1
            if not self._of_tenant[tenant_id]:
                del self._of_tenant[tenant_id]
