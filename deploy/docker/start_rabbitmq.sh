#!/usr/bin/env bash
# The entrypoint of the rabbitmq container: puts the passwords of the environment into the definitions, then starts the node as the image does.
set -euo pipefail

umask 027
mkdir -p /run/chatmind
text=$(</chatmind/definitions.json)
for name in RABBITMQ_PASSWORD CHATMIND_{GATEWAY,AGENT_RUNNER,INGESTION,RETRIEVAL}_RABBITMQ_PASSWORD; do
  text=${text//"\${$name}"/"${!name}"}
  unset "$name"
done
printf '%s\n' "$text" >/run/chatmind/definitions.json
chown -R root:rabbitmq /run/chatmind

entrypoint=$(command -v docker-entrypoint.sh || true)
exec ${entrypoint:+"$entrypoint"} "$@"
