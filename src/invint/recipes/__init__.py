"""Recipes: every column of the paper's appendix, and small ones for a CPU."""

from invint.recipes.recipe import Recipe as Recipe
from invint.recipes.recipe import changed as changed
from invint.recipes.recipe import recipe_fields as recipe_fields
from invint.recipes.registry import RECIPES as RECIPES
from invint.recipes.registry import find_recipe as find_recipe
