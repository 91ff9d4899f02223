-- Run once by PostgreSQL's image, as superuser, in the new database. The migrator gets a role that owns this database and makes the roles of
-- the services; it can't create extensions, so pgvector is put there now.
\getenv password CHATMIND_DATABASE_PASSWORD
CREATE EXTENSION vector;
CREATE ROLE chatmind LOGIN CREATEROLE PASSWORD :'password';
ALTER DATABASE chatmind OWNER TO chatmind;
