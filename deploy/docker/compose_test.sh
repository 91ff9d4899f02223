#!/usr/bin/env bash
# Brings the system up by Docker Compose as a project of its own, asks the end-to-end questions, and takes everything down again.
# Passwords are made for this run, the engine chooses free ports. Without an engine it says so and passes.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() { echo "skipped: $1"; exit 0; }
fail() { echo "error: $1" >&2; exit 1; }
report() { printf '%6d s  %s\n' $((SECONDS - since)) "$1"; since=$SECONDS; }

READY_SECONDS=${READY_SECONDS:-420}
python=${PYTHON:-.venv/bin/python}

command -v docker >/dev/null || skip "docker is not installed"
docker info >/dev/null 2>&1 || skip "no Docker engine answers"
if docker compose version >/dev/null 2>&1; then compose=(docker compose)
elif command -v docker-compose >/dev/null; then compose=(docker-compose)
else skip "neither 'docker compose' nor docker-compose is installed"; fi
"$python" -c 'import httpx' 2>/dev/null || fail "$python with httpx is needed: run 'make install'"

project=chatmind-test-$$
folder=$(mktemp -d)
compose+=(--project-name "$project" --env-file "$folder/env" --file docker-compose.yml --file deploy/docker/compose_test.yml)
export CHATMIND_IMAGE=chatmind:compose-test
export CHATMIND_GATEWAY_HOST=127.0.0.1 CHATMIND_GATEWAY_PORT=0
# Where the engine's own network reaches no package index, the host's does.
export CHATMIND_BUILD_NETWORK=${CHATMIND_BUILD_NETWORK:-host}
# What somebody exported for another installation is not meant here.
mapfile -t passwords < <(compgen -v | grep -E "^(POSTGRES|CHATMIND|RABBITMQ)_.*PASSWORD$" || true)
unset CHATMIND_LOG_LEVEL "${passwords[@]}"

clean_up() {
  local code=$?
  trap - EXIT INT TERM
  if [ "$code" -ne 0 ]; then "${compose[@]}" ps >&2 || true; "${compose[@]}" logs --no-color --tail 40 >&2 || true; fi
  "${compose[@]}" down --volumes --remove-orphans --timeout 15 >"$folder/down.log" 2>&1 || cat "$folder/down.log" >&2
  rm -rf "$folder"
  echo "$SECONDS s in all"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The state of each container: its health, or whether it ended well. One that is replaced just now is `missing`.
states() {
  local id
  for id in $("${compose[@]}" ps --quiet); do
    docker inspect --format \
      '{{if .State.Running}}{{if .State.Health}}{{.State.Health.Status}}{{else}}running{{end}}{{else}}ended {{.State.ExitCode}}{{end}}' \
      "$id" || echo missing
  done
}

all_healthy() {
  local found
  found=$(states)
  ! grep --quiet --invert-match --line-regexp --extended-regexp 'healthy|ended 0' <<<"$found"
}

wait_until_healthy() {
  local deadline=$((SECONDS + READY_SECONDS))
  until all_healthy; do
    [ "$SECONDS" -lt "$deadline" ] || fail "not healthy after $READY_SECONDS s"
    sleep 1
  done
}

since=$SECONDS
deploy/docker/make_env.sh "$folder/env" 2>/dev/null
"${compose[@]}" build >"$folder/build.log" 2>&1 || { tail -n 40 "$folder/build.log" >&2; fail "the image can't be built"; }
report "image built"
"${compose[@]}" up --detach --scale agent-runner=2 --scale gateway=2 >"$folder/up.log" 2>&1 || { cat "$folder/up.log" >&2; fail "up failed"; }
report "containers started"
wait_until_healthy
report "all healthy"

# The addresses of a service's containers.
urls() { for id in $("${compose[@]}" ps --quiet "$1"); do echo "http://$(docker port "$id" 8000/tcp)"; done; }
mapfile -t gateways < <(urls gateway)
mapfile -t runners < <("${compose[@]}" ps --quiet agent-runner)
CHATMIND_API_KEY=$("${compose[@]}" exec -T gateway python -m services.gateway.admin issue-key --tenant default --name compose-test)
export CHATMIND_API_KEY
"$python" -m deploy.docker.compose_check --balancer "$(urls balancer)" --gateway "${gateways[@]}" --runner "${runners[@]}"
echo "passed: questions answered in English and Chinese over two gateways, and one with its runner killed"
