"""Recipes: how to run a probe, as YAML -> frozen values; errors name file, line and key.

`values` holds what the rest of the program sees, `wire` the pydantic models of the file, `load` reads, `template`
writes a first recipe for a repository it has looked at.
"""

from bisect_train.recipe.load import load_recipe
from bisect_train.recipe.overrides import override_text
from bisect_train.recipe.template import Findings, inspect_tree, recipe_template
from bisect_train.recipe.values import (
    ConfigRecipe,
    DataRecipe,
    MetricRecipe,
    Recipe,
    ResourcesRecipe,
    RestartRecipe,
    SetupRecipe,
    ShrinkRecipe,
)

__all__ = [
    "ConfigRecipe",
    "DataRecipe",
    "Findings",
    "MetricRecipe",
    "Recipe",
    "ResourcesRecipe",
    "RestartRecipe",
    "SetupRecipe",
    "ShrinkRecipe",
    "inspect_tree",
    "load_recipe",
    "override_text",
    "recipe_template",
]
