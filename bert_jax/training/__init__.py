"""How to learn: optimizer, sharding, step, evaluation, checkpoints, the metric log and ``train(config, workdir)``."""
