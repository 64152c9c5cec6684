"""A column of a CSV file, as Lightning's CSVLogger, litgpt, DeepSpeed's csv_monitor and pandas write them.

Rows may lack most of their cells (a row for training, another one for validation), and a program that was started again may
write its header again: rows before that of the same or later steps are void.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from bisect_train_workers.sources.points import STEP_NAMES, Points, number_of, step_of
from bisect_train_workers.sources.text_lines import lines_of

_DELIMITERS = ",;\t|"


def read_csv(data: bytes, column: str, step_column: str = "", *, is_whole: bool) -> Points:
    """Return the values of a column; a last line without its end counts only where the program finished."""
    header: list[str] = []
    points, is_again = Points(), False
    for row in _rows_of(lines_of(data, is_whole=is_whole), column):
        cells = [cell.strip() for cell in row]
        if not points.known:
            points.known = dict.fromkeys(cell for cell in cells if cell)
        if column in cells and not any(number_of(cell) is not None for cell in cells):
            is_again, header = bool(header), cells
        elif header and len(cells) != len(header):
            is_again = True  # a row that was cut off, on which the next run's header may have been written
        elif header:
            text, step = cells[header.index(column)], _step_in(cells, header, step_column)
            if is_again and step is not None:
                points.purge(step)
                is_again = False
            points.add_text(text, step)
    if header:
        points.known = dict.fromkeys(header)
    return points


def _step_in(cells: list[str], header: list[str], step_column: str) -> int | None:
    names = (step_column,) if step_column else STEP_NAMES
    return next((step_of(cells[header.index(name)]) for name in names if name in header), None)


def _rows_of(lines: list[str], column: str) -> Iterator[list[str]]:
    """Yield the rows, separated by what parts the header; what cannot be read as a row ends the file."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=_delimiter_of(lines, column))
    try:
        yield from reader
    except csv.Error:  # a cell of more than 128 KiB
        return


def _delimiter_of(lines: list[str], column: str) -> str:
    first = next((line for line in lines if column in line), lines[0] if lines else "")
    for delimiter in _DELIMITERS:
        try:
            cells = next(csv.reader([first[: 1 << 16]], delimiter=delimiter), [])
        except csv.Error:  # a carriage return inside a cell
            continue
        if column in [cell.strip() for cell in cells] and len(cells) > 1:
            return delimiter
    return max(_DELIMITERS, key=first.count) if any(mark in first for mark in _DELIMITERS) else ","
