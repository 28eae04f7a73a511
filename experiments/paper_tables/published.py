"""The figures of the paper (arXiv:1810.04805v2), as printed there. Figure 5's are read from the plot, to about 0.1."""

from __future__ import annotations

from experiments.paper_tables.cell import Published

GLUE = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE", "average")
SQUAD = ("dev EM", "dev F1", "test EM", "test F1")

PUBLISHED = {
    "1": Published(
        "Table 1. GLUE, test sets",
        GLUE,
        {
            "Pre-OpenAI SOTA": (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7, 74.0),
            "BiLSTM+ELMo+Attn": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0),
            "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1),
            "BERT-BASE": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
            "BERT-LARGE": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
        },
    ),
    "2": Published(
        "Table 2. SQuAD 1.1",
        SQUAD,
        {
            "Human": (None, None, 82.3, 91.2),
            "nlnet, ensemble": (None, None, 86.0, 91.7),
            "QANet, ensemble": (None, None, 84.5, 90.5),
            "BiDAF+ELMo": (None, 85.6, None, 85.8),
            "R.M. Reader, ensemble": (81.2, 87.9, 82.3, 88.5),
            "BERT-BASE": (80.8, 88.5, None, None),
            "BERT-LARGE": (84.1, 90.9, None, None),
            "BERT-LARGE, ensemble": (85.8, 91.8, None, None),
            "BERT-LARGE + TriviaQA": (84.2, 91.1, 85.1, 91.8),
            "BERT-LARGE, ensemble + TriviaQA": (86.2, 92.2, 87.4, 93.2),
        },
    ),
    "3": Published(
        "Table 3. SQuAD 2.0",
        SQUAD,
        {
            "Human": (86.3, 89.0, 86.9, 89.5),
            "MIR-MRC (F-Net)": (None, None, 74.8, 78.0),
            "nlnet": (None, None, 74.2, 77.1),
            "unet, ensemble": (None, None, 71.4, 74.9),
            "SLQA+": (None, None, 71.4, 74.4),
            "BERT-LARGE": (78.7, 81.9, 80.0, 83.1),
        },
    ),
    "4": Published(
        "Table 4. SWAG",
        ("dev", "test"),
        {
            "ESIM+GloVe": (51.9, 52.7),
            "ESIM+ELMo": (59.1, 59.2),
            "OpenAI GPT": (None, 78.0),
            "BERT-BASE": (81.6, None),
            "BERT-LARGE": (86.6, 86.3),
            "Human (expert)": (None, 85.0),
            "Human (5 annotations)": (None, 88.0),
        },
    ),
    "5": Published(
        "Table 5. Pre-training tasks, BASE, development sets",
        ("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD F1"),
        {
            "BERT-BASE": (84.4, 88.4, 86.7, 92.7, 88.5),
            "No NSP": (83.9, 84.9, 86.5, 92.6, 87.9),
            "LTR & No NSP": (82.1, 84.3, 77.5, 92.1, 77.8),
            "+ BiLSTM": (82.1, 84.1, 75.7, 91.6, 84.9),
        },
    ),
    "6": Published(
        "Table 6. Size of the model, development sets",
        ("perplexity", "MNLI-m", "MRPC", "SST-2"),
        {
            "L 3, H 768, A 12": (5.84, 77.9, 79.8, 88.4),
            "L 6, H 768, A 3": (5.24, 80.6, 82.2, 90.7),
            "L 6, H 768, A 12": (4.68, 81.9, 84.8, 91.3),
            "L 12, H 768, A 12": (3.99, 84.4, 86.7, 92.9),
            "L 12, H 1024, A 16": (3.54, 85.7, 86.9, 93.3),
            "L 24, H 1024, A 16": (3.23, 86.6, 87.8, 93.7),
        },
    ),
    "7": Published(
        "Table 7. CoNLL-2003, F1 of named entities",
        ("dev", "test"),
        {
            "ELMo": (95.7, 92.2),
            "CVT": (None, 92.6),
            "CSE": (None, 93.1),
            "BERT-LARGE, fine-tuning": (96.6, 92.8),
            "BERT-BASE, fine-tuning": (96.4, 92.4),
            "features: embeddings": (91.0, None),
            "features: second-to-last hidden": (95.6, None),
            "features: last hidden": (94.9, None),
            "features: weighted sum of last four": (95.9, None),
            "features: concat of last four": (96.1, None),
            "features: weighted sum of all 12": (95.5, None),
        },
    ),
    "8": Published(
        "Table 8. Masking (mask / same / random), BASE, development sets",
        ("MNLI", "NER fine-tuned", "NER features"),
        {
            "80 / 10 / 10": (84.2, 95.4, 94.9),
            "100 / 0 / 0": (84.3, 94.9, 94.0),
            "80 / 0 / 20": (84.1, 95.2, 94.6),
            "80 / 20 / 0": (84.4, 95.2, 94.7),
            "0 / 20 / 80": (83.7, 94.8, 94.6),
            "0 / 0 / 100": (83.6, 94.9, 94.6),
        },
    ),
    "figure5": Published(
        "Figure 5. MNLI after so many thousand steps of pre-training, development set",
        ("30k", "50k", "100k", "200k", "400k", "600k", "800k", "1000k"),
        {
            "masked LM": (78.6, 79.6, 80.5, 82.2, 83.2, 84.0, 84.3, 84.4),
            "left-to-right": (79.4, 79.8, 80.3, 81.0, 81.7, 81.9, 82.1, 82.2),
        },
    ),
}
FEATURES = {
    "features: embeddings": "embeddings",
    "features: second-to-last hidden": "second_to_last",
    "features: last hidden": "last",
    "features: weighted sum of last four": "weighted_sum_last_four",
    "features: concat of last four": "concat_last_four",
    "features: weighted sum of all 12": "weighted_sum_all",
}


def masking(row: str) -> str:
    """Of a row of Table 8, as configs name it: 80-10-10."""
    return row.replace(" / ", "-")
