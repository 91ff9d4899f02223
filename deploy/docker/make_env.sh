#!/usr/bin/env bash
# Writes fresh passwords for docker-compose.yml to a file (default: .env in the repository), readable by its owner only.
# A file that exists stays as it is; passwords that it lacks are added. The passwords also live in the data volumes:
# to change them later, change them in PostgreSQL and RabbitMQ too.
# Usage: deploy/docker/make_env.sh [FILE]
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd)
file=${1:-$repository/.env}

umask 077
touch "$file"
for name in POSTGRES_PASSWORD CHATMIND_DATABASE_PASSWORD RABBITMQ_PASSWORD; do
  grep -q "^$name=." "$file" && continue
  # Hexadecimal digits only: the passwords become parts of URLs.
  echo "$name=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" >>"$file"
  echo "added $name to $file" >&2
done
