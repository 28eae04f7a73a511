"""Pre-training (paper: section 3.1, appendix A.2; ablations: Tables 5, 6, 8).

    python -m experiments.train --config configs/pretrain.py:size=base --config.corpus=DIR --workdir runs/base

Choices after the colon: size= (base, large, tiny, mini, small, medium, L4_H256, ...), seq= (two_phase or a length),
objective= (mlm_nsp, mlm_sop, mlm, ltr, rtl), masking= (80-10-10, 100-0-0, 80-0-20, 80-20-0, 0-20-80, 0-0-100: the rows
of Table 8, mask-same-random; whole_word; ngram), optimizer= (adamw; lamb: NVIDIA's two phases for LARGE).

BASE: 1,000,000 steps of 256 sequences, 90 % of 128 tokens; 4 days on 16 TPU chips; held-out masked-LM perplexity 3.99
(Table 6), NSP accuracy 97-98 %. LARGE: 64 chips, perplexity 3.23. lamb: NVIDIA's DeepLearningExamples, nearly You et
al.'s (arXiv:1904.00962: 76 minutes on 1,024 TPU v3, SQuAD F1 90.6); by NVIDIA's throughput 1.5 days on 8 A100.
"""

from ml_collections import ConfigDict, config_dict

from configs import shared

CHOICES = {"size": "base", "seq": "two_phase", "objective": ("mlm_nsp", "mlm_sop", "mlm", "ltr", "rtl")}
CHOICES |= {"masking": "80-10-10", "optimizer": ("adamw", "lamb")}
NAMED = dict(tiny="L2_H128", mini="L4_H256", small="L4_H512", medium="L8_H512", base="L12_H768", large="L24_H1024")
TWO_PHASES = ({"train_steps": 900_000}, {"train_steps": 100_000, "max_seq_length": 512})
LAMB_PHASES = (
    {"train_steps": 7038, "batch_size": 65536, "max_seq_length": 128, "learning_rate": 6e-3, "warmup_steps": 2000},
    {"train_steps": 1563, "batch_size": 32768, "max_seq_length": 512, "learning_rate": 4e-3, "warmup_steps": 200},
)


def get_config(choices: str = "") -> ConfigDict:
    chosen = shared.choose("pretrain.py", choices, CHOICES)
    lamb, two_phase = chosen["optimizer"] == "lamb", chosen["seq"] == "two_phase"
    config = ConfigDict({"task": "pretraining", "seed": 0, "corpus": "", "objective": chosen["objective"]})
    try:
        length = 128 if two_phase else int(chosen["seq"])
        config.model, config.masking = model(chosen["size"]), masking(chosen["masking"])
    except ValueError:
        raise ValueError(f"{choices!r} has a malformed size, seq or masking; see configs/pretrain.py") from None
    config.update({"short_seq_prob": 0.1, "fill": "document", "batch_size": 256, "max_seq_length": length})
    config.optimizer = {"name": chosen["optimizer"], "weight_decay": 0.01, "bias_correction": lamb}
    config.optimizer["learning_rate"] = 6e-3 if lamb else 1e-4
    config.update({"warmup_steps": None if lamb else 10_000, "warmup_ratio": config_dict.placeholder(float)})
    config.update({"schedule": "square_root" if lamb else "linear", "decay_ratio": 0.1})
    config.phases = LAMB_PHASES if lamb else TWO_PHASES if two_phase else ()
    config.train_steps = config_dict.placeholder(int) if config.phases else 1_000_000
    config.update(shared.loop(keep_last=2) | {"init_from": config_dict.placeholder(str), "eval_examples": 10_000})
    config.update({"log_every_steps": 100, "eval_every_steps": 10_000, "checkpoint_every_steps": 10_000})
    return config


def model(size: str) -> ConfigDict:
    layers, hidden, *heads = (int(part[1:]) for part in NAMED.get(size, size).split("_"))
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": 4 * hidden}
    ours = {"dtype": "bfloat16", "scan_layers": layers >= 12, "remat": False, "attention_implementation": "xla"}
    return ConfigDict({**sizes, "num_attention_heads": heads[0] if heads else hidden // 64, **ours})


def masking(name: str) -> ConfigDict:
    if name in ("whole_word", "ngram"):
        return ConfigDict({"rate": 0.15, "strategy": name})
    mask, same, rand = (int(share) / 100 for share in name.split("-"))
    return ConfigDict({"rate": 0.15, "mask": mask, "same": same, "random": rand})
