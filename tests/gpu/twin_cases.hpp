// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The host's own tests of a collection on Cuda, body by body: tests/collection has each on Host under the same name.
#pragma once

#include <collection/bad_input_bodies.hpp>
#include <collection/collection_bodies.hpp>
#include <gpu/array.hpp>

#include <doctest/doctest.h>

TEST_CASE("gradients that are NaN or infinite: a rejected step changes nothing on any rank") {
  bad_input::a_rejected_step_changes_nothing<Cuda>();
}
TEST_CASE("gradients that are NaN or infinite: counted or not, they are used") { bad_input::counted_or_not_they_are_used<Cuda>(); }
TEST_CASE("offsets that go backwards, counts that are negative or huge") { bad_input::wrong_offsets_and_counts<Cuda>(); }
TEST_CASE("ids around 2^31 and 2^32 are outside, whatever their low bits say") { bad_input::ids_around_2_31_and_2_32<Cuda>(); }
TEST_CASE("batches of no sample, bags of no id") { bad_input::no_sample_and_no_id<Cuda>(); }
TEST_CASE("tables of no width or no rows, shards beyond them") { bad_input::tables_of_no_width_or_rows<Cuda>(); }
TEST_CASE("the gradient of a batch that is not the last one looked up, or of another collection") {
  bad_input::a_stale_or_foreign_step<Cuda>();
}
TEST_CASE("matrices whose rows overlap or that have no memory; states that are not there") {
  bad_input::matrices_that_overlap_or_are_nowhere<Cuda>();
}
TEST_CASE("a learning rate that is no number") { bad_input::a_learning_rate_that_is_no_number<Cuda>(); }
TEST_CASE("constants of an optimizer that are no numbers") { bad_input::optimizer_constants_that_are_no_numbers<Cuda>(); }
TEST_CASE("rows that changed hands start anew, and only those") { bad_input::rows_that_changed_hands<Cuda>(); }

TEST_CASE("bad ids: Throw names feature, sample, id and rows, on every rank count; nothing is changed") {
  as_a_trainer::bad_ids_are_thrown<Cuda>();
}
TEST_CASE("bad ids: ZeroVector drops, Clamp and Wrap replace; all count; no row is polluted") {
  as_a_trainer::bad_ids_are_dropped_or_replaced<Cuda>();
}
TEST_CASE("a zero vector still counts in the divisor of a mean; an empty bag is zero") {
  as_a_trainer::a_zero_vector_counts_in_a_mean<Cuda>();
}
TEST_CASE("first values depend on seed, table, row and column alone") { as_a_trainer::first_values_depend_on_seed_and_place<Cuda>(); }
TEST_CASE("initializers: constant, uniform, normal, a user's own") { as_a_trainer::initializers<Cuda>(); }
TEST_CASE("wrong calls say what is wrong") { as_a_trainer::wrong_calls<Cuda>(); }
TEST_CASE("an empty batch passes through, on all ranks and on one of them") { as_a_trainer::an_empty_batch_passes_through<Cuda>(); }
TEST_CASE("rows known at run time, learning rate changed between steps, output into a wider matrix") {
  as_a_trainer::open_rows_other_rates_wider_outputs<Cuda>();
}
TEST_CASE("two steps in flight: the next batch is routed before this one is finished, with the same result") {
  as_a_trainer::two_steps_in_flight<Cuda>();
}
TEST_CASE("16-bit tables: lookups are the stored values, updates round without bias") { as_a_trainer::sixteen_bit_tables<Cuda>(); }
