"""A run that ends wakes the next one of its session in the same statement."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_suffix(".sql").read_text())
