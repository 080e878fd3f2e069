"""The notes under a table: what a reader must know, each said once."""

from collections.abc import Sequence

from invint.study.record import RunRecord
from invint.study.tables.table import NOT_RUN, Row


class Notes:
    """Gathers what has to be said, and gives out the letters that point to it."""

    def __init__(self, runs: Sequence[RunRecord]) -> None:
        self.by_letter: dict[str, str] = {}
        self.runs = runs

    def marks(self, runs: Sequence[RunRecord]) -> str:
        """Return the letters of the notes that hold for the runs of a cell."""
        scales = sorted({run.scale for run in runs if run.scale < 1})
        texts = [f"scaled down: {scale:.3g} of the recipe's iterations" for scale in scales]
        return "".join(self._letter(text) for text in texts)

    def _letter(self, text: str) -> str:
        for letter, known in self.by_letter.items():
            if known == text:
                return letter
        letter = chr(ord("a") + len(self.by_letter))
        self.by_letter[letter] = text
        return letter

    def texts(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Return all notes of a table."""
        cells = [cell for row in rows for cell in row.cells]
        counts = sorted({cell.ours.count for cell in cells if cell.ours})
        seeds = " or ".join(map(str, counts))
        texts = [f"mean ± sample deviation (number of seeds: {seeds})"]
        texts += [f"data: {note}" for note in sorted({run.note for run in self.runs if run.note})]
        texts += [f"{letter}: {text}" for letter, text in self.by_letter.items()]
        if any(cell.paper for cell in cells):
            texts.append("paper: as printed there, over 5 seeds (Rotated-MNIST) or 3")
        if any(cell.difference for cell in cells):
            texts.append(
                "differences: negative means fewer errors than pooling, over the same seeds and "
                "training images; where the interval holds zero, no difference is shown"
            )
        if any(cell.ours is None for cell in cells):
            texts.append(f"{NOT_RUN}: no finished run at this size")
        return tuple(texts)
