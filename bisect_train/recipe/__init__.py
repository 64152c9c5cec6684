"""Recipes: how to run a probe, as YAML -> frozen values; errors name file, line and key.

`values` holds what the rest of the program sees, `wire` the pydantic models of the file, `load` reads, `template`
writes a first recipe for a repository it has looked at.
"""

from bisect_train.recipe.extending import is_file_name, preset_names, preset_path
from bisect_train.recipe.load import load_recipe
from bisect_train.recipe.overrides import override_text
from bisect_train.recipe.recognise import Found, Recognised, Tree, find_rest, preset_template, recognise
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
    WhenRecipe,
)

__all__ = [
    "ConfigRecipe",
    "DataRecipe",
    "Findings",
    "Found",
    "MetricRecipe",
    "Recipe",
    "Recognised",
    "ResourcesRecipe",
    "RestartRecipe",
    "SetupRecipe",
    "ShrinkRecipe",
    "Tree",
    "WhenRecipe",
    "find_rest",
    "inspect_tree",
    "is_file_name",
    "load_recipe",
    "override_text",
    "preset_names",
    "preset_path",
    "preset_template",
    "recipe_template",
    "recognise",
]
