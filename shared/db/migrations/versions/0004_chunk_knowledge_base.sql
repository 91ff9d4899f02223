-- A chunk is in the knowledge base of its document. Its knowledge_base_id was a copy that nothing checked, so a row could point into
-- another tenant's knowledge base.
DROP INDEX document_by_knowledge_base;
ALTER TABLE document ADD CONSTRAINT document_by_knowledge_base UNIQUE (tenant_id, knowledge_base_id, id);
ALTER TABLE chunk
    DROP CONSTRAINT chunk_tenant_id_document_id_fkey,
    ADD FOREIGN KEY (tenant_id, knowledge_base_id, document_id) REFERENCES document (tenant_id, knowledge_base_id, id) ON DELETE CASCADE;
