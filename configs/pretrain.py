"""Pre-training (paper: section 3.1, appendix A.2; ablations: Tables 5, 6, 8).

    python -m experiments.train --config configs/pretrain.py:size=base --config.corpus=DIR --workdir runs/base

Choices after the colon: size= (base, large, tiny, mini, small, medium, L4_H256, ...), seq= (two_phase, 128, 512),
objective= (mlm_nsp, mlm_sop, mlm, ltr, rtl), masking= (80-10-10, 100-0-0, 80-0-20, 80-20-0, 0-20-80, 0-0-100: the rows
of Table 8, mask-same-random; whole_word; ngram), optimizer= (adamw, lamb).

BASE as published: 1,000,000 steps of 256 sequences, 90 % of them of 128 tokens; 4 days on 16 TPU v2 chips. Expected:
held-out masked-LM perplexity 3.99 (Table 6), NSP accuracy 97-98 %. LARGE: 64 chips, perplexity 3.23.
optimizer=lamb is NVIDIA's schedule for LARGE: 7,038 steps of 65,536 x 128, then 1,563 steps of 32,768 x 512.
"""

from ml_collections import ConfigDict

SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


def get_config(choices: str = "") -> ConfigDict:
    chosen = {"size": "base", "seq": "two_phase", "objective": "mlm_nsp", "masking": "80-10-10", "optimizer": "adamw"}
    for choice in filter(None, choices.split(",")):
        key, _, value = choice.partition("=")
        if key not in chosen:
            raise ValueError(f"pretrain.py has no choice {key!r}; it has {', '.join(chosen)}")
        chosen[key] = value
    config = ConfigDict()
    config.task = "pretraining"
    config.seed = 0
    config.corpus = ""
    config.objective = chosen["objective"]
    config.masking = masking(chosen["masking"])
    config.short_seq_prob = 0.1
    config.fill = "document"
    config.eval_examples = 10_000
    config.model = model(chosen["size"])
    config.batch_size = 256
    config.max_seq_length = 512 if chosen["seq"] == "512" else 128
    config.warmup_steps = 10_000
    config.optimizer = ConfigDict({"name": chosen["optimizer"], "learning_rate": 1e-4, "weight_decay": 0.01})
    if chosen["optimizer"] == "lamb":
        config.warmup_steps = None
        config.optimizer = ConfigDict({"name": "lamb", "learning_rate": 6e-3, "bias_correction": True})
        config.phases = (
            {
                "train_steps": 7038,
                "batch_size": 65536,
                "max_seq_length": 128,
                "learning_rate": 6e-3,
                "warmup_steps": 2000,
            },
            {
                "train_steps": 1563,
                "batch_size": 32768,
                "max_seq_length": 512,
                "learning_rate": 4e-3,
                "warmup_steps": 200,
            },
        )
    elif chosen["seq"] == "two_phase":
        config.phases = ({"train_steps": 900_000}, {"train_steps": 100_000, "max_seq_length": 512})
    else:
        config.train_steps = 1_000_000
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1})
    config.log_every_steps = 100
    config.eval_every_steps = config.checkpoint_every_steps = 10_000
    return config


def model(size: str) -> ConfigDict:
    layers, hidden = SIZES[size] if size in SIZES else (int(part[1:]) for part in size.split("_")[:2])
    heads = int(size.split("_A")[1]) if "_A" in size else hidden // 64
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    # Accelerators compute in bfloat16; scan and remat trade compile time and memory, never the result's meaning.
    ours = {"dtype": "bfloat16", "scan_layers": layers >= 12, "remat": False, "attention_implementation": "xla"}
    return ConfigDict({**sizes, "intermediate_size": 4 * hidden, **ours})


def masking(name: str) -> ConfigDict:
    if name in ("whole_word", "ngram"):
        return ConfigDict({"rate": 0.15, "strategy": name})
    mask, same, rand = (int(share) / 100 for share in name.split("-"))
    return ConfigDict({"rate": 0.15, "mask": mask, "same": same, "random": rand})
