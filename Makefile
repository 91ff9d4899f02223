# Everything a newcomer needs: `make demo`, then `make down`. `make` alone lists the targets.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo up down status logs dead-letters test check lint format faults eval bench bench-scale bench-switch ocr compose-test lock

PYTHON ?= python3
UV := $(shell command -v uv || echo .local/uv/bin/uv)
ENSURE_UV = test -x $(UV) || $(MAKE) --no-print-directory $(UV)
RUN := .venv/bin/python -m
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.runtime ## start everything and ask two questions about two sample documents
	@$(RUN) deploy.local demo

up: .venv/.runtime ## start the stack: PostgreSQL, RabbitMQ, models and the four services
	@$(RUN) deploy.local up

down: | .venv/.runtime ## stop all of it; data stays in .local
	@$(RUN) deploy.local down

status: | .venv/.runtime ## what runs, and whether it is ready
	@$(RUN) deploy.local status

logs: | .venv/.runtime ## merged logs; SERVICE=gateway for one program, FOLLOW=1 to go on, LINES=200
	@$(RUN) deploy.local logs --service '$(SERVICE)' --lines $(or $(LINES),200) $(if $(FOLLOW),--follow)

dead-letters: | .venv/.runtime ## messages that could not be read; REDRIVE=1 or REDRIVE=id sends them again, DROP=id removes one
	@$(RUN) deploy.local dead-letters --redrive '$(REDRIVE)' --drop '$(DROP)'

test: .venv/.dev ## what decides whether a change may land; ARGS='-k name' goes to pytest
	@$(RUN) deploy.local.rabbitmq_package || test -z "$$CI"
	@$(MAKE) --no-print-directory check
	@$(RUN) pytest $(ARGS)

check: .venv/.dev ## style, types and import rules
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@$(RUN) mypy
	@.venv/bin/lint-imports

lint: .venv/.dev ## ruff, mending what it can
	@.venv/bin/ruff check --fix .

format: .venv/.dev ## ruff format
	@.venv/bin/ruff format .

faults: .venv/.dev ## the fault suite; CASE='3,18-24' some of it, SEED=7 again as it was, TRIALS=300
	@$(RUN) tests.faults --case '$(CASE)' $(if $(SEED),--seed '$(SEED)') $(if $(TRIALS),--trials '$(TRIALS)')

eval: .venv/.dev ## quality of parsing and retrieval over ../shared/data; ONLY=retrieval SETS=zh-tidb-faq EMBEDS=both some of it
	@$(RUN) tests.evaluation --only '$(ONLY)' --sets '$(SETS)' --embeds '$(EMBEDS)'

bench: .venv/.dev ## speed and memory against baselines of the same run; ONLY=ingestion some of it
	@$(RUN) tests.bench --only '$(ONLY)'

bench-scale: .venv/.dev ## searches among 10,000 to 1,000,000 chunks; SCALE=0.05 a part of them
	@$(RUN) tests.bench.scale

bench-switch: .venv/.dev ## searches while a base of 100,000 chunks changes its embedding model; SCALE=0.05 a part of them
	@$(RUN) tests.bench.switching

compose-test: .venv/.runtime ## the same system by Docker Compose, with the end-to-end questions
	@bash deploy/docker/compose_test.sh

ocr: .venv/.runtime ## what reads scans, for CHATMIND_OCR__ENABLED=true
	@$(ENSURE_UV)
	@$(UV) pip install --quiet --python .venv/bin/python 'rapidocr>=3.10,<4' 'onnxruntime>=1.20,<2'

install: .venv/.dev ## .venv with everything, pinned

lock: ## choose new versions for requirements.lock and requirements-dev.lock
	@$(ENSURE_UV)
	@$(COMPILE) --upgrade pyproject.toml --group local --output-file requirements.lock
	@$(COMPILE) --upgrade pyproject.toml --group local --group dev --constraints requirements.lock --output-file requirements-dev.lock

.venv/.runtime: requirements.lock
	@$(ENSURE_UV)
	@test -x .venv/bin/python || $(UV) venv --quiet --python '>=3.11' .venv
	@echo "installing requirements.lock into .venv"
	@$(UV) pip install --quiet --compile-bytecode --python .venv/bin/python --require-hashes --requirements requirements.lock
	@touch $@

.venv/.dev: requirements-dev.lock .venv/.runtime | $(UV)
	@echo "installing requirements-dev.lock into .venv"
	@$(UV) pip install --quiet --compile-bytecode --python .venv/bin/python --require-hashes --requirements requirements-dev.lock
	@touch $@

.local/uv/bin/uv:
	@echo "installing uv into .local/uv"
	@$(PYTHON) -m venv .local/uv || { echo "error: python3 can't make environments: apt-get install python3-venv" >&2; exit 1; }
	@.local/uv/bin/pip install --quiet --disable-pip-version-check uv
