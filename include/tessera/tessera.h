/* SPDX-FileCopyrightText: 2026 The Tessera authors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

/* Sharded embedding tables from C and from what calls C: the functions of the library tessera::c (docs/bridges.md).

   Every function returns a status. Where it is not TESSERA_OK, tessera_last_error() says what is wrong, where, and what to do;
   results are then not written. No exception leaves the library. A pointer that must not be NULL says so in its error.

   One thread at a time may use a communicator, and a collection, a step or a vocabulary made of it; ranks that are threads have one of
   each. Different threads may use different ones. Functions that say "Collective" must be called by every rank, in the same order.
   A child of fork() may use nothing that its parent made. */

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) || !defined(__GNUC__)
#define TESSERA_API
#else
#define TESSERA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tessera_status {
  TESSERA_OK = 0,
  TESSERA_INVALID_ARGUMENT = 1,   /* an argument, option or plan that cannot work */
  TESSERA_BAD_ID = 2,             /* an id outside its table */
  TESSERA_DATA_ERROR = 3,         /* a file that cannot be read or written */
  TESSERA_COMMUNICATOR_ERROR = 4, /* a rank failed, is late, or disagrees */
  TESSERA_OUT_OF_MEMORY = 5,
  TESSERA_UNSUPPORTED = 6, /* the library was built without it */
  TESSERA_INTERNAL = 7
} tessera_status;

/* Returns the text of this thread's last failed call; "" before there is one. Valid until this thread's next call. */
TESSERA_API const char* tessera_last_error(void);
/* Returns "0.1.0". */
TESSERA_API const char* tessera_version(void);

/* ---- communicators: the ranks of a job ---- */

typedef struct tessera_communicator tessera_communicator;

/* Makes the communicator of a job of one rank. */
TESSERA_API tessera_status tessera_communicator_self(tessera_communicator** out);
/* Makes those of `ranks` threads of this process: out[r] is rank r's. `timeout_seconds`: how long a rank waits for others; 0: for ever. */
TESSERA_API tessera_status tessera_communicator_threads(int ranks, double timeout_seconds, tessera_communicator** out);
/* Makes this process's, over Gloo: ranks, address and port are from the launcher's variables (torchrun, srun, mpirun). Collective. */
TESSERA_API tessera_status tessera_communicator_gloo(double timeout_seconds, tessera_communicator** out);
/* Makes this process's, over MPI. `comm` points to an MPI_Comm, which is duplicated; NULL: MPI_COMM_WORLD. Collective. */
TESSERA_API tessera_status tessera_communicator_mpi(const void* comm, double timeout_seconds, tessera_communicator** out);

/* Messages between ranks that the caller carries. Each function returns 0, or another number if it failed: then the call that needed it
   returns TESSERA_COMMUNICATOR_ERROR with the number. `send` and `receive` begin a transfer, whose memory stays in use until `wait`
   returns; messages of one pair of ranks and one tag arrive in the order in which they were sent. `peer` is never this rank, and
   `count` never 0. */
typedef struct tessera_messages {
  size_t struct_size; /* sizeof(tessera_messages) */
  void* context;      /* what the functions get */
  int rank, size;
  int (*send)(void* context, int peer, int tag, const void* bytes, size_t count);
  int (*receive)(void* context, int peer, int tag, void* bytes, size_t count);
  int (*wait)(void* context);                     /* until all transfers that were begun are done */
  void (*fail)(void* context, const char* text); /* tells all peers that this rank has failed; or NULL */
} tessera_messages;

/* Makes this rank's over the caller's messages, in host memory: all collectives, checks and sums in rank order are the library's. */
TESSERA_API tessera_status tessera_communicator_messages(const tessera_messages* messages, tessera_communicator** out);

TESSERA_API tessera_status tessera_communicator_rank(const tessera_communicator* communicator, int* rank, int* size);
/* Says that this rank has failed: waits of the others end with TESSERA_COMMUNICATOR_ERROR and this text. Any thread may call it. */
TESSERA_API tessera_status tessera_communicator_fail(tessera_communicator* communicator, const char* text);
/* Replaces `values` by their sums over the ranks, added in rank order: gradients of dense layers. Collective. */
TESSERA_API tessera_status tessera_all_reduce(tessera_communicator* communicator, float* values, size_t count);
/* Returns when every rank has called it. Collective. */
TESSERA_API tessera_status tessera_barrier(tessera_communicator* communicator);
TESSERA_API void tessera_communicator_destroy(tessera_communicator* communicator);

/* ---- layouts: which rank holds what ---- */

typedef struct tessera_table {
  const char* name;
  int64_t rows;
  int32_t width;
  const char* policy; /* "table-wise", "column-wise:PARTS", "row-wise", "replicated", "grid:PARTS"; NULL: the layout's */
} tessera_table;

typedef enum tessera_pooling {
  TESSERA_SUM = 0,
  TESSERA_MEAN = 1,
  TESSERA_SQRTN = 2,
  TESSERA_MAX = 3,
  TESSERA_SEQUENCE = 4 /* a vector for each id */
} tessera_pooling;

typedef struct tessera_feature {
  const char* name;
  const char* table;
  int pooling;  /* a tessera_pooling */
  int weighted; /* not 0: it reads the batch's weights */
} tessera_feature;

typedef struct tessera_layout tessera_layout;

/* Cuts tables for 1 to 32767 ranks. `policy`: of tables that name none: one of the above, or "auto": the planner chooses. */
TESSERA_API tessera_status tessera_layout_create(const tessera_table* tables, size_t table_count, const tessera_feature* features,
                                                 size_t feature_count, int ranks, int ranks_per_node, const char* policy,
                                                 tessera_layout** out);
/* Does the same as a plan file says, which names the same tables and ranks; their policies do not count. */
TESSERA_API tessera_status tessera_layout_from_file(const char* path, const tessera_table* tables, size_t table_count,
                                                    const tessera_feature* features, size_t feature_count, int ranks,
                                                    int ranks_per_node, tessera_layout** out);
/* Returns the layout as the text of a plan file; it lives as long as the layout. */
TESSERA_API tessera_status tessera_layout_text(const tessera_layout* layout, const char** text);
/* Returns how many columns pooled vectors have: the widths of pooled features, side by side in their order. */
TESSERA_API tessera_status tessera_layout_columns(const tessera_layout* layout, int64_t* columns);
TESSERA_API void tessera_layout_destroy(tessera_layout* layout);

/* ---- collections: tables, looked up, exchanged and updated ---- */

typedef struct tessera_collection_options {
  size_t struct_size;
  const char* optimizer; /* "adam", "rowwise-adagrad(epsilon=1e-6)", or pairs "ftrl:wide_*,adam:*" of patterns of tables' names */
  const char* precision; /* of the tables: "fp32", "bf16", "fp16" */
  const char* codec;     /* of vectors that travel: "fp32", "bf16", "fp16", "int8" */
  const char* gradient_codec;
  float learning_rate;
  float initial_bound; /* first values are uniform in [-bound, bound); negative: in [-1/sqrt(rows), 1/sqrt(rows)) */
  uint64_t seed;
  int threads;         /* of OpenMP, of this rank */
  int deduplicate;     /* not 0: each distinct id travels once */
  int bad_ids;         /* ids outside their table: 0: TESSERA_BAD_ID, 1: zero vector, 2: clamp, 3: wrap around */
  int gradient_blocks; /* blocks of samples whose gradients are summed first, over all ranks; 0: one a rank */
  int device;          /* -1: tables are in host memory; else the GPU that has this rank's */
  void* stream;        /* its cudaStream_t, in whose order all work is done; NULL: the default stream */
} tessera_collection_options;

typedef struct tessera_collection tessera_collection;

/* Fills in struct_size and the defaults: sgd, fp32, rate 0.01, host memory. */
TESSERA_API tessera_status tessera_collection_defaults(tessera_collection_options* options);
/* Makes this rank's part of the tables, filled with first values that depend on seed and table alone. The communicator and the layout may
   be destroyed before it. With a GPU, what a step reads and writes is in its memory: ids, offsets, weights, vectors, gradients, and `dense`
   of tessera_apply; calls return when the host knows what it must, work goes on in the stream. Whole tables, rows to reset and a
   vocabulary's keys are in host memory always. TESSERA_UNSUPPORTED: the library was built without CUDA, or ranks that are no threads of one
   GPU need NCCL. Collective. */
TESSERA_API tessera_status tessera_collection_create(tessera_communicator* communicator, const tessera_layout* layout,
                                                     const tessera_collection_options* options, tessera_collection** out);
TESSERA_API void tessera_collection_destroy(tessera_collection* collection);

/* This rank's samples: bag (feature f, sample s) holds ids[offsets[f * samples + s] .. offsets[f * samples + s + 1]). */
typedef struct tessera_batch {
  int64_t features, samples;
  const void* ids;
  size_t id_count;
  int id_bits;            /* 32 or 64, signed */
  const int64_t* offsets; /* features * samples + 1 of them, or NULL: one id a bag */
  const float* weights;   /* one an id, or NULL */
} tessera_batch;

/* A batch in flight. A collection may have several, at different places of their ways. */
typedef struct tessera_step tessera_step;

TESSERA_API tessera_status tessera_step_create(tessera_collection* collection, tessera_step** out);
TESSERA_API void tessera_step_destroy(tessera_step* step);

/* Checks ids and sends them to the ranks that own their rows. The batch's arrays stay in use until the step's update. Collective. */
TESSERA_API tessera_status tessera_route(tessera_step* step, const tessera_batch* batch);
/* Writes the pooled vectors of this rank's samples, [samples, columns], `stride` floats from row to row. Collective. */
TESSERA_API tessera_status tessera_lookup(tessera_step* step, float* output, int64_t stride);
/* Does both for samples that get no update, and ends the step. Collective. */
TESSERA_API tessera_status tessera_evaluate(tessera_step* step, const tessera_batch* batch, float* output, int64_t stride);

/* Writes a vector for each id of a sequence feature, [ids, width], after tessera_lookup. `ids` and `width` may be asked for alone: output
   NULL. `feature` is its index in the layout. */
TESSERA_API tessera_status tessera_sequence(const tessera_step* step, int feature, float* output, int64_t stride, int64_t* ids,
                                            int64_t* width);

typedef struct tessera_sequence_gradient {
  int feature;
  const float* values; /* [ids, width] */
  int64_t stride;
} tessera_sequence_gradient;

typedef struct tessera_gradients {
  const float* pooled; /* of the output of tessera_lookup */
  int64_t stride;
  const tessera_sequence_gradient* sequences; /* one for each sequence feature */
  size_t sequence_count;
  float* weight_gradients; /* out: one an id, gradients of the batch's weights; NULL on every rank, or on none, also one without ids. Not for accumulate */
} tessera_gradients;

/* Updates the rows that the step looked up, each once, and ends the step. Collective. */
TESSERA_API tessera_status tessera_update(tessera_step* step, const tessera_gradients* gradients);
/* Sets gradients aside for tessera_apply; of several steps, and of several losses of one. Collective. */
TESSERA_API tessera_status tessera_accumulate(tessera_step* step, const tessera_gradients* gradients);
/* Makes one step of the optimizer of what was set aside. `most_norm`: gradients are scaled so that the norm of all, with those of `dense`
   (alike on all ranks), is no larger; 0: as they are. `norm` gets the norm before, or 0; it may be NULL. Collective. */
TESSERA_API tessera_status tessera_apply(tessera_collection* collection, float most_norm, float* dense, size_t dense_count, double* norm);

/* Sets the rate of later updates, of a table's optimizer or of all (NULL). Every rank sets the same one. */
TESSERA_API tessera_status tessera_set_learning_rate(tessera_collection* collection, const char* table, float rate);
/* Returns the number of updates so far. */
TESSERA_API tessera_status tessera_steps(const tessera_collection* collection, int64_t* steps);
/* Returns how many ids outside each table this rank has seen: an entry for each table of the layout. */
TESSERA_API tessera_status tessera_bad_ids(const tessera_collection* collection, uint64_t* counts, size_t count);

/* Copies this rank's part of a table from (read) or to (write) the whole table, [rows, width] in `values`; other elements are left alone.
   `state` -1: weights; from 0 on: a state of the optimizer, which may have one column. */
TESSERA_API tessera_status tessera_read_table(const tessera_collection* collection, const char* table, int state, float* values,
                                              int64_t stride);
/* Writes the whole table on every rank, [rows, width], or a state of the optimizer. Collective. */
TESSERA_API tessera_status tessera_gather_table(tessera_collection* collection, const char* table, int state, float* values,
                                                int64_t stride);
TESSERA_API tessera_status tessera_write_table(tessera_collection* collection, const char* table, int state, const float* values,
                                               int64_t stride);
/* Returns how many states a table has besides its weights, and how many columns state `state` has (-1: its width). */
TESSERA_API tessera_status tessera_table_states(const tessera_collection* collection, const char* table, int state, int* states,
                                                int64_t* columns);
/* Lets rows that this rank holds start anew, such as those that a vocabulary gave to other keys. */
TESSERA_API tessera_status tessera_reset_rows(tessera_collection* collection, const char* table, const int64_t* rows, size_t count);

/* ---- vocabularies: raw 64-bit keys become rows ---- */

typedef struct tessera_vocabulary tessera_vocabulary;

/* Makes one for all tables of a collection. `admit_after`: a key gets a row of its own when it has been seen so often. Collective. */
TESSERA_API tessera_status tessera_vocabulary_create(tessera_collection* collection, int64_t admit_after, tessera_vocabulary** out);
/* Learns a batch of keys (id_bits 64): writes the row of each, and lets rows that changed hands start anew. Collective. */
TESSERA_API tessera_status tessera_vocabulary_learn(tessera_vocabulary* vocabulary, const tessera_batch* keys, int64_t* rows);
/* Writes the rows of known keys, 0 for others, and changes nothing. Collective. */
TESSERA_API tessera_status tessera_vocabulary_find(tessera_vocabulary* vocabulary, const tessera_batch* keys, int64_t* rows);
TESSERA_API void tessera_vocabulary_destroy(tessera_vocabulary* vocabulary);

/* ---- checkpoints ---- */

/* Saves tables, optimizer states and a vocabulary (NULL: none) to DIRECTORY/step-N, N in 12 digits, which any plan and number of ranks
   reads. Collective. */
TESSERA_API tessera_status tessera_save(tessera_collection* collection, tessera_vocabulary* vocabulary, const char* directory,
                                        int64_t step);
/* Reads the folder of such a checkpoint; nothing has changed where it fails. Collective. */
TESSERA_API tessera_status tessera_load(tessera_collection* collection, tessera_vocabulary* vocabulary, const char* folder);

/* ---- frozen tables: to serve a trained model ---- */

typedef struct tessera_frozen tessera_frozen;

/* Writes a checkpoint's tables into one file. `format`: "fp32", "fp16", "bf16", "int8", "int8-half", "int4". */
TESSERA_API tessera_status tessera_freeze(const char* folder, const char* file, const char* format);
/* Maps such a file, for lookups of these features. `bad_ids` as in the options of a collection. */
TESSERA_API tessera_status tessera_frozen_open(const char* file, const tessera_feature* features, size_t feature_count, int bad_ids,
                                               int threads, tessera_frozen** out);
TESSERA_API tessera_status tessera_frozen_columns(const tessera_frozen* frozen, int64_t* columns);
/* Writes pooled vectors, [samples, columns]. One thread at a time; the mapped file is shared. */
TESSERA_API tessera_status tessera_frozen_lookup(tessera_frozen* frozen, const tessera_batch* batch, float* output, int64_t stride);
TESSERA_API void tessera_frozen_destroy(tessera_frozen* frozen);

#ifdef __cplusplus
}
#endif

#endif
