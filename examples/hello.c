/* SPDX-FileCopyrightText: 2026 The Tessera authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* hello.cpp in C99: the same tables, loss and ranks through tessera.h and libtessera_c, and the same losses to the last bit. */
/* [program] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

enum { BATCH = 1024, WIDTH = 16, COLUMNS = 2 * WIDTH };

static void check(tessera_status status) {
  if (status == TESSERA_OK) return;
  fprintf(stderr, "%s\n", tessera_last_error());
  exit(1);
}

static void* train(void* communicator) {
  tessera_communicator* ranks = communicator;
  int rank, size;
  check(tessera_communicator_rank(ranks, &rank, &size));
  const int mine = BATCH / size, first = mine * rank;

  const tessera_table tables[] = {{"user", 1000, WIDTH, "row-wise"}, {"film", 200, WIDTH, "column-wise:2"}};
  tessera_layout* layout;
  check(tessera_layout_create(tables, 2, NULL, 0, size, 0, NULL, &layout));
  tessera_collection_options options;
  check(tessera_collection_defaults(&options));
  options.optimizer = "rowwise-adagrad";
  options.learning_rate = 0.1f;
  options.seed = 42;
  tessera_collection* collection;
  check(tessera_collection_create(ranks, layout, &options, &collection));
  tessera_step* step;
  check(tessera_step_create(collection, &step));

  int32_t ids[2 * BATCH]; /* the samples' users, then their films */
  float pooled[BATCH * COLUMNS], gradient[BATCH * COLUMNS], errors[BATCH];
  for (int n = 0; n < 30; ++n) {
    for (int s = 0; s < mine; ++s) {
      ids[s] = (n * BATCH + first + s) * 7 % 1000;
      ids[mine + s] = (n * BATCH + first + s) / 3 % 200;
    }
    const tessera_batch batch = {2, mine, ids, 2 * (size_t)mine, 32, NULL, NULL};
    check(tessera_route(step, &batch));
    check(tessera_lookup(step, pooled, COLUMNS));
    memset(errors, 0, sizeof errors); /* of all ranks' samples */
    for (int s = 0; s < mine; ++s) {
      const float* v = pooled + s * COLUMNS;
      float miss = ids[s] % 4 == ids[mine + s] % 4 ? -1 : 0; /* users like every fourth film */
      for (int c = 0; c < WIDTH; ++c) miss += v[c] * v[c + WIDTH];
      for (int c = 0; c < COLUMNS; ++c) gradient[s * COLUMNS + c] = miss * v[(c + WIDTH) % COLUMNS];
      errors[first + s] = miss * miss;
    }
    const tessera_gradients gradients = {gradient, COLUMNS, NULL, 0, NULL};
    check(tessera_update(step, &gradients)); /* each row is updated on the rank that holds it */
    check(tessera_all_reduce(ranks, errors, BATCH));
    float sum = 0;
    for (int s = 0; s < BATCH; ++s) sum += errors[s];
    if (rank == 0 && n % 10 == 9) printf("%d ranks, step %d: loss %.9g\n", size, n + 1, sum / BATCH);
  }
  tessera_step_destroy(step);
  tessera_collection_destroy(collection);
  tessera_layout_destroy(layout);
  return NULL;
}

int main(void) {
  for (int ranks = 1; ranks <= 4; ranks *= 2) {
    tessera_communicator* communicators[4];
    pthread_t threads[4];
    check(tessera_communicator_threads(ranks, 0, communicators));
    for (int r = 0; r < ranks; ++r) pthread_create(&threads[r], NULL, train, communicators[r]);
    for (int r = 0; r < ranks; ++r) pthread_join(threads[r], NULL);
    for (int r = 0; r < ranks; ++r) tessera_communicator_destroy(communicators[r]);
  }
  return 0;
}
/* [program end] */
