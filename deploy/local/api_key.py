"""The key that `make up` leaves in `.local/api_key`: issued once, and again when the database does not know it (any more)."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping

from deploy.local.errors import StackError
from deploy.local.secret_files import write_secret
from deploy.local.settings import REPOSITORY, StackSettings


def ensure_api_key(settings: StackSettings, variables: Mapping[str, str]) -> bool:
    """Whether a new key was written. The gateway must be ready: it is asked whether the present one is good."""
    file = settings.api_key_file
    if file.exists() and _is_accepted(settings.api_url, file.read_text().strip()):
        file.chmod(0o600)
        return False
    key = run_module(
        ["services.gateway.admin", "issue-key", "--tenant", "default", "--name", "local"], variables
    ).strip()
    write_secret(file, f"{key}\n")
    return True


def run_module(arguments: list[str], variables: Mapping[str, str]) -> str:
    """The output of `python -m ...`, one of the project's own commands. Raises StackError when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(f"python -m {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}".rstrip(), "see above")
    return done.stdout


def _is_accepted(api_url: str, key: str) -> bool:
    url, headers = f"{api_url}/api/agents?limit=1", {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - our own gateway
    try:
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310 - our own gateway
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        if error.code == 401:
            return False
        raise StackError(f"the gateway answers {error.code} to GET /api/agents", "make logs SERVICE=gateway") from error
