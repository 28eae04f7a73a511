"""Five restarts of one recipe at one learning rate (the paper, Table 6: "5 random restarts of fine-tuning").

    python -m experiments.sweep --config configs/restarts.py:recipe=glue,task=mrpc --config.data_dir=GLUE \\
        --config.init_from=runs/base --workdir runs/mrpc-restarts

Choices after the colon: recipe= (glue, squad, swag, ner, features, classify, korean) first, then that recipe's own.
Everything else is the recipe's, the learning rate too. A restart has another order of the data, another fresh layer and
other dropout: its seed. The paper's tables with such means are made by it (``experiments.paper`` says which). Five
times the recipe's hours.
"""

from ml_collections import ConfigDict

from configs import classify, features, glue, korean, ner, squad, swag

RECIPES = {recipe.__name__.split(".")[-1]: recipe for recipe in (glue, squad, swag, ner, features, classify, korean)}


def get_config(choices: str = "") -> ConfigDict:
    first, _, rest = choices.partition(",")
    key, _, name = (first or "recipe=glue").partition("=")
    if key != "recipe" or name not in RECIPES:
        raise ValueError(f"restarts.py begins with recipe=, not {first!r}; take recipe={', recipe='.join(RECIPES)}")
    return RECIPES[name].get_config(rest)


def sweep(add) -> None:
    """The recipe's own learning rate, five seeds."""
    for seed in range(5):
        add(seed=seed)
