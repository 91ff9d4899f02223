"""Every message between services, who sends it and who takes it.

| class | kind | from | to |
|---|---|---|---|
| ExecuteRun | command (wake-up, outbox) | gateway, agent_runner | agent_runner |
| IngestDocument | command (wake-up, outbox) | gateway, ingestion | ingestion |
| SearchKnowledge -> Answered[SearchResult] or Refused | question with a deadline | agent_runner, gateway | retrieval |
| StreamAdvanced, MessageDelta | hint | gateway, agent_runner, ingestion | every gateway |
| RunCancelled | hint | gateway | every agent_runner |
"""
