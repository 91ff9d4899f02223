"""What the gateway keeps, one file a noun. Resources are read as the JSON that clients get: see the *_json functions of the schema."""
