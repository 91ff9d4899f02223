"""How vectors are found by an index, and moved into it."""

from pathlib import Path

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    # By the driver's own cursor: format() has percent signs, which SQLAlchemy would take for placeholders.
    op.get_bind().connection.cursor().execute(Path(__file__).with_suffix(".sql").read_text())
