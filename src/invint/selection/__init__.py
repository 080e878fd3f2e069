"""Choosing monomials: candidate sets, scores, pruning, least squares, and what became of them.

What a run does with them, and when, is not here.
"""

from invint.selection.history import History as History
from invint.selection.history import SelectionStep as SelectionStep
from invint.selection.history import history_of as history_of
from invint.selection.history import selection_event as selection_event
from invint.selection.least_squares import Exchange as Exchange
from invint.selection.least_squares import exchange as exchange
from invint.selection.least_squares import features_of_maps as features_of_maps
from invint.selection.least_squares import maps_of as maps_of
from invint.selection.pruning import best as best
from invint.selection.pruning import catalog_size as catalog_size
from invint.selection.pruning import connectivity as connectivity
from invint.selection.pruning import find_monomials as find_monomials
from invint.selection.pruning import initial_monomials as initial_monomials
from invint.selection.pruning import magnitude as magnitude
from invint.selection.pruning import masked as masked
from invint.selection.pruning import prune as prune
