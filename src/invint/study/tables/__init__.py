"""Tables over runs: ours beside the paper's, and what may be said about the heads."""

from invint.study.tables.gathering import make_table as make_table
from invint.study.tables.gathering import ordered_recipes as ordered_recipes
from invint.study.tables.gathering import tables_by_data as tables_by_data
from invint.study.tables.table import Cell as Cell
from invint.study.tables.table import Row as Row
from invint.study.tables.table import Table as Table
from invint.study.tables.texts import decimals as decimals
from invint.study.tables.texts import interval_text as interval_text
from invint.study.tables.texts import signed as signed
