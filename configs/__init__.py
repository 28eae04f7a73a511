"""Recipes: plain ``ml_collections`` configs that import nothing of ``bert_jax``."""
