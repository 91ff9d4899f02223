"""Text from pictures of pages: an extra (`make ocr`), off unless the settings say otherwise.

RapidOCR's package brings its models for Chinese and English along, so nothing is fetched. A page takes 5 to 15 seconds of
the processor and up to 2 GB of address space: a document has limits of its own from its first picture on.
"""

import math
import resource
import signal
import time
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, Self

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.ingestion.parsing.pdf.segments import Segment

_MAX_SIDE: Final = 4000  # pixels of a page's picture
_SAME_HEIGHT: Final = 0.3  # by how much boxes around type of one size differ
_SIZE: Final = 0.75  # of a box's height is the font's size
_POINTS: Final = 72  # an inch


class OcrSettings(BaseModel):
    """Whether pages without text are read from their pictures, and what that may cost a document."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    dpi: int = Field(default=150, ge=72, le=400)
    least_score: float = Field(default=0.5, ge=0, le=1, description="lines that are less certain are left out")
    max_pages: int = Field(default=50, gt=0, description="further pages of a document stay without text")
    memory_bytes: int = Field(default=3 * 1024**3, gt=0)
    cpu_seconds: int = Field(default=900, gt=0)
    wall_seconds: float = Field(default=1200, gt=0)

    @model_validator(mode="after")
    def _is_installed(self) -> Self:
        if self.enabled and (find_spec("rapidocr") is None or find_spec("onnxruntime") is None):
            raise ValueError(
                "OCR is on, but rapidocr and onnxruntime are missing: install them (`make ocr`), or set CHATMIND_OCR__ENABLED=false"
            )
        return self


class PictureReader:
    """Reads the pages of one document from their pictures."""

    def __init__(self, settings: OcrSettings) -> None:
        self._settings = settings
        self._pages = 0

    def read(self, page: pdfium.PdfPage) -> list[Segment]:
        """Return the lines that are seen on the page; none once the document has had its share of pages."""
        if self._pages == 0:
            _limit(self._settings)
        self._pages += 1
        if self._pages > self._settings.max_pages:
            return []
        scale = min(self._settings.dpi / _POINTS, _MAX_SIDE / max(*page.get_size(), 1))
        seen = _engine()(page.render(scale=scale).to_numpy())
        if seen.boxes is None:
            return []
        certain = [index for index, score in enumerate(seen.scores) if score >= self._settings.least_score]
        places = _places(np.asarray(seen.boxes, np.float64)[certain] / scale)
        heights = places[:, 3] - places[:, 2]
        usual = float(np.median(heights)) if len(heights) else 0.0
        sizes = np.where(np.abs(heights - usual) < _SAME_HEIGHT * usual, usual, heights) * _SIZE
        return [
            Segment(seen.txts[index], left, right, bottom, top, size)
            for index, (left, right, bottom, top), size in zip(certain, places.tolist(), sizes.tolist(), strict=True)
        ]


@cache
def _engine() -> Any:
    """Return the recogniser. It is loaded with the first page: a child that meets no scan doesn't pay for it."""
    from rapidocr import RapidOCR  # noqa: PLC0415  (an extra)

    one_thread = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    return RapidOCR(params={"Global.log_level": "error", **one_thread})


def _limit(settings: OcrSettings) -> None:
    for kind, soft in (
        (resource.RLIMIT_AS, settings.memory_bytes),
        (resource.RLIMIT_CPU, math.ceil(time.process_time()) + settings.cpu_seconds),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))
    signal.setitimer(signal.ITIMER_REAL, settings.wall_seconds)


def _places(quads: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return left, right, bottom, top of each quadrangle, y upwards, in a frame in which the lines are level.

    Corners go round from the upper left one. A page whose quadrangles are taller than wide is taken to be turned to the left.
    """
    if len(quads) == 0:
        return np.zeros((0, 4))
    corners = quads * (1, -1)
    width, height = corners[:, 1] - corners[:, 0], corners[:, 0] - corners[:, 3]
    if np.median(np.hypot(*height.T) - np.hypot(*width.T)) > 0:
        corners = np.roll(np.stack((corners[:, :, 1], -corners[:, :, 0]), axis=2), 1, axis=1)
        width = corners[:, 1] - corners[:, 0]
    slant = float(np.median(np.arctan2(width[:, 1], width[:, 0])))
    turn = np.array(((math.cos(slant), -math.sin(slant)), (math.sin(slant), math.cos(slant))))
    level = corners @ turn
    return np.column_stack((level[:, :, 0].min(1), level[:, :, 0].max(1), level[:, :, 1].min(1), level[:, :, 1].max(1)))
