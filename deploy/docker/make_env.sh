#!/usr/bin/env bash
# Writes fresh passwords for docker-compose.yml to a file (default: .env in the repository), readable by its owner only.
# A file that exists stays as it is; passwords that it lacks are added. To change one of a service or RabbitMQ's, change it here and run
# `docker compose up` again; the two of PostgreSQL's own roles live in its volume and are changed there too.
# Usage: deploy/docker/make_env.sh [FILE]
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd)
file=${1:-$repository/.env}

umask 077
touch "$file"
names=(POSTGRES_PASSWORD CHATMIND_DATABASE_PASSWORD RABBITMQ_PASSWORD)
for service in GATEWAY AGENT_RUNNER INGESTION RETRIEVAL; do
  names+=("CHATMIND_${service}_DATABASE_PASSWORD" "CHATMIND_${service}_RABBITMQ_PASSWORD")
done
for name in "${names[@]}"; do
  grep -q "^$name=." "$file" && continue
  # Hexadecimal digits only: the passwords become parts of URLs.
  echo "$name=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" >>"$file"
  echo "added $name to $file" >&2
done
