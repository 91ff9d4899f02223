"""Wake-ups. Each names a row that says what is to be done; losing or repeating one is harmless because the row stays as it is."""

from uuid import UUID

from shared.contracts.base import Contract


class ExecuteRun(Contract):
    """gateway, agent_runner -> agent_runner. The row is `run`."""

    tenant_id: UUID
    session_id: UUID
    run_id: UUID
    request_id: str | None = None


class IngestDocument(Contract):
    """gateway, ingestion -> ingestion. The row is `document`."""

    tenant_id: UUID
    knowledge_base_id: UUID
    document_id: UUID
    request_id: str | None = None
