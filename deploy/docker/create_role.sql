-- Run once by PostgreSQL's image, as superuser, in the new database. Services get a role that owns this database and nothing else;
-- it can't create extensions, so pgvector is put there now.
\getenv password CHATMIND_DATABASE_PASSWORD
CREATE EXTENSION vector;
CREATE ROLE chatmind LOGIN PASSWORD :'password';
ALTER DATABASE chatmind OWNER TO chatmind;
