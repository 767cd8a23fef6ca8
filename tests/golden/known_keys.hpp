// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace golden {

/// All that golden cases may say. Each object has a type: its keys by its `kind`, or under "" if it
/// has none. A key's value is null for a plain value, or the type of the object or objects below
/// it. generate.py reads this text, too: what a reader does not know it refuses.
inline constexpr const char* kKnownKeys = R"({
  "case": {
    "embedding": {"batch": null, "steps": null, "tables": "table", "features": "feature",
      "optimizer": "optimizer"},
    "accumulate": {"micro_batches": null, "applies": null, "clip": "clip", "tables": "table",
      "features": "feature", "optimizer": "optimizer"},
    "dlrm": {"batch": null, "steps": null, "dense_features": null, "bottom_mlp": null,
      "top_mlp": null, "lr": null, "losses": null, "tables": "plain table", "cross": "cross"},
    "dcnv2": {"batch": null, "steps": null, "dense_features": null, "bottom_mlp": null,
      "top_mlp": null, "lr": null, "losses": null, "tables": "plain table", "cross": "cross"},
    "schedule": {"schedules": "named schedule"},
    "auc": {"sets": "set", "thresholds": null},
    "quantized": {"rows": null, "width": null, "row_kinds": null},
    "hstu": {"batch": null, "width": null, "heads": null, "attention_dim": null,
      "hidden_dim": null, "alpha": null, "norm_eps": null, "max_seq_len": null, "silu": null,
      "concat_ux": null, "max_attn_len": null, "num_targets": null},
    "wide_deep": {"batch": null, "steps": null, "dense_features": null,
      "features": "wide and deep feature", "mlp": null, "losses": null,
      "wide_optimizer": "optimizer", "deep_optimizer": "optimizer", "mlp_optimizer": "optimizer"}
  },
  "table": {"": {"name": null, "rows": null, "width": null, "optimizer": "optimizer"}},
  "plain table": {"": {"name": null, "rows": null, "width": null}},
  "feature": {"": {"name": null, "table": null, "pooling": null, "weighted": null}},
  "wide and deep feature": {"": {"name": null, "rows": null, "deep_width": null}},
  "cross": {"": {"layers": null, "rank": null}},
  "clip": {"global_norm": {"max": null}, "value": {"max": null}},
  "optimizer": {
    "sgd": {"lr": null},
    "momentum": {"lr": null, "momentum": null},
    "adagrad": {"lr": null, "eps": null, "initial_accumulator": null},
    "rowwise_adagrad": {"lr": null, "eps": null, "initial_accumulator": null,
      "weight_decay": null, "weight_decay_mode": null},
    "adam": {"lr": null, "beta1": null, "beta2": null, "eps": null},
    "adamw": {"lr": null, "beta1": null, "beta2": null, "eps": null, "weight_decay": null},
    "partial_rowwise_adam": {"lr": null, "beta1": null, "beta2": null, "eps": null,
      "weight_decay": null},
    "ftrl": {"lr": null, "beta": null, "l1": null, "l2": null, "initial_accumulator": null},
    "frozen": {}
  },
  "named schedule": {"": {"name": null, "schedule": "schedule", "rates": null}},
  "schedule": {
    "constant": {"rate": null},
    "warmup": {"rate": null, "warmup_steps": null},
    "polynomial": {"rate": null, "warmup_steps": null, "decay_start_step": null,
      "decay_steps": null, "power": null, "end_rate": null},
    "cosine": {"rate": null, "decay_steps": null, "end_rate": null},
    "inverse_sqrt": {"rate": null, "warmup_steps": null},
    "step_decay": {"rate": null, "every": null, "milestones": null, "factor": null},
    "chain": {"stages": "stage"}
  },
  "stage": {"": {"steps": null, "schedule": "schedule"}},
  "set": {"": {"name": null, "samples": null, "auc": null, "binned_auc": null, "log_loss": null,
    "normalized_entropy": null}}
})";

}  // namespace golden
