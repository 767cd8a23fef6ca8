# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""RecBole's SASRec on MovieLens-100K, leave one out, all unseen items ranked: what train_sequence's next-item model is compared with.

    pip install recbole    # in an environment of its own; it needs PyTorch. Its wheel has the data: dataset_example/ml-100k
    python bench/recbole_sasrec.py SEED [EPOCHS [BATCH_SIZE]]

RecBole's own settings, but for the number of epochs and the batch size. It trains on every prefix of every history, stops where NDCG at 10
on the validation part has not risen for ten epochs, and tests the best epoch's model. One thread.
"""
import os
import pathlib
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
import recbole  # noqa: E402
import torch  # noqa: E402
from recbole.quick_start import run_recbole  # noqa: E402

torch.set_num_threads(1)
torch.set_flush_denormal(True)
seed, epochs, batch = (int(v) for v in (sys.argv[1:] + ["2024", "50", "2048"][len(sys.argv) - 1:])[:3])
result = run_recbole(model="SASRec", dataset="ml-100k", config_dict={
    "data_path": str(pathlib.Path(recbole.__file__).parent / "dataset_example"),
    "load_col": {"inter": ["user_id", "item_id", "rating", "timestamp"]},
    "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "mode": "full", "group_by": "user"},
    "train_neg_sample_args": None, "loss_type": "CE", "metrics": ["Hit", "NDCG", "MRR"], "topk": [10], "valid_metric": "NDCG@10",
    "seed": seed, "epochs": epochs, "train_batch_size": batch, "eval_batch_size": 1024, "stopping_step": 10, "use_gpu": False,
    "show_progress": False, "checkpoint_dir": "build/recbole"})
print(result)
