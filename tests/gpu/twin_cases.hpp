// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The host's own tests of a collection on Cuda, body by body: tests/collection has each on Host
// under the same name. Cases stand in the files that run them, as a fused program picks them by
// their files; source_rules.py finds a body that one backend lacks.
#pragma once

#include <collection/agreement_bodies.hpp>
#include <collection/bad_input_bodies.hpp>
#include <collection/codec_exchange_bodies.hpp>
#include <collection/collection_bodies.hpp>
#include <collection/deduplicate_bodies.hpp>
#include <collection/group_bodies.hpp>
#include <collection/sequence_bodies.hpp>
#include <collection/stage_bodies.hpp>
#include <collection/step_fault_bodies.hpp>
#include <collection/step_report_bodies.hpp>
#include <collection/tier_bodies.hpp>
#include <gpu/array.hpp>

#include <doctest/doctest.h>

TEST_CASE("gradients that are NaN or infinite: a rejected step changes nothing on any rank") {
  bad_input::a_rejected_step_changes_nothing<Cuda>();
}
TEST_CASE("gradients that are NaN or infinite: counted or not, they are used") {
  bad_input::counted_or_not_they_are_used<Cuda>();
}
TEST_CASE("offsets that go backwards, counts that are negative or huge") {
  bad_input::wrong_offsets_and_counts<Cuda>();
}
TEST_CASE("ids around 2^31 and 2^32 are outside, whatever their low bits say") {
  bad_input::ids_around_2_31_and_2_32<Cuda>();
}
TEST_CASE("batches of no sample, bags of no id") { bad_input::no_sample_and_no_id<Cuda>(); }
TEST_CASE("tables of no width or no rows, shards beyond them") {
  bad_input::tables_of_no_width_or_rows<Cuda>();
}
TEST_CASE("the gradient of a batch that is not the last one looked up, or of another collection") {
  bad_input::a_stale_or_foreign_step<Cuda>();
}
TEST_CASE("matrices whose rows overlap or that have no memory; states that are not there") {
  bad_input::matrices_that_overlap_or_are_nowhere<Cuda>();
}
TEST_CASE("a learning rate that is no number") {
  bad_input::a_learning_rate_that_is_no_number<Cuda>();
}
TEST_CASE("constants of an optimizer that are no numbers") {
  bad_input::optimizer_constants_that_are_no_numbers<Cuda>();
}
TEST_CASE("rows that changed hands start anew, and only those") {
  bad_input::rows_that_changed_hands<Cuda>();
}

TEST_CASE(
    "stages that are left out or repeated: each wrong order is refused, and the tables stay") {
  stages::every_wrong_order_is_refused<Cuda>();
}
TEST_CASE("stages with a step of another collection") {
  stages::the_step_of_another_collection<Cuda>();
}
TEST_CASE("stages with gradients of another shape") { stages::gradients_of_other_shapes<Cuda>(); }
TEST_CASE(
    "gradients that are NaN through the stages: the rejected step changes nothing, and takes "
    "others") {
  stages::rejected_through_the_stages<Cuda>();
}
TEST_CASE("the stages one by one are forward and backward, weight gradients too") {
  stages::stages_are_forward_and_backward<Cuda>();
}
TEST_CASE("a forgotten backward is counted; stages that are compared refuse it") {
  stages::a_forgotten_backward<Cuda>();
}
TEST_CASE("evaluation is forward, and leaves no trace") {
  stages::evaluation_is_forward_without_a_trace<Cuda>();
}
TEST_CASE("an update that is too large changes no table") {
  stages::an_update_that_is_too_large_changes_nothing<Cuda>();
}

TEST_CASE(
    "bad ids: throw_error names feature, sample, id and rows, on every rank count; nothing is "
    "changed") {
  as_a_trainer::bad_ids_are_thrown<Cuda>();
}
TEST_CASE("bad ids: zero_vector drops, clamp and wrap replace; all count; no row is polluted") {
  as_a_trainer::bad_ids_are_dropped_or_replaced<Cuda>();
}
TEST_CASE("a zero vector still counts in the divisor of a mean; an empty bag is zero") {
  as_a_trainer::a_zero_vector_counts_in_a_mean<Cuda>();
}
TEST_CASE("first values depend on seed, table, row and column alone") {
  as_a_trainer::first_values_depend_on_seed_and_place<Cuda>();
}
TEST_CASE("initializers: constant, uniform, normal, a user's own") {
  as_a_trainer::initializers<Cuda>();
}
TEST_CASE("wrong calls say what is wrong") { as_a_trainer::wrong_calls<Cuda>(); }
TEST_CASE("an empty batch passes through, on all ranks and on one of them") {
  as_a_trainer::an_empty_batch_passes_through<Cuda>();
}
TEST_CASE(
    "rows known at run time, learning rate changed between steps, output into a wider matrix") {
  as_a_trainer::open_rows_other_rates_wider_outputs<Cuda>();
}
TEST_CASE(
    "two steps in flight: the next batch is routed before this one is finished, with the same "
    "result") {
  as_a_trainer::two_steps_in_flight<Cuda>();
}
TEST_CASE("16-bit tables: lookups are the stored values, updates round without bias") {
  as_a_trainer::sixteen_bit_tables<Cuda>();
}

TEST_CASE("ranks that construct different things say what differs and where") {
  disagreeing::ranks_construct_different_things<Cuda>();
}
TEST_CASE("ranks with different types: optimizer, elements, codecs") {
  disagreeing::ranks_with_different_types<Cuda>();
}
TEST_CASE("ids of different types in one batch") { disagreeing::ids_of_different_types<Cuda>(); }
TEST_CASE("stages are compared where that is asked for") {
  disagreeing::stages_are_compared<Cuda>();
}
TEST_CASE("learning rates that differ between ranks are refused where ranks meet") {
  disagreeing::learning_rates_are_compared<Cuda>();
}
TEST_CASE(
    "a plan of replicated tables needs all_gather alone, and gives what any communicator gives") {
  disagreeing::replicas_need_all_gather_alone<Cuda>();
}

TEST_CASE("training without duplicates in the exchange: as with them, to float tolerance") {
  without_duplicates::as_with_them<Cuda>();
}
TEST_CASE(
    "forward: a bag over several blocks of rows is summed in the order of its ids, as on one "
    "rank") {
  without_duplicates::bags_are_summed_in_the_order_of_ids<Cuda>();
}
TEST_CASE("with codecs: rows travel encoded; the error is that of the codec per id") {
  without_duplicates::rows_travel_encoded<Cuda>();
}
TEST_CASE(
    "traffic: each distinct id of a feature and a rank travels once, and one row comes back") {
  without_duplicates::each_distinct_id_travels_once<Cuda>();
}

TEST_CASE("a user's codec that loses nothing gives the bits of no codec") {
  encoded::a_users_codec_that_loses_nothing<Cuda>();
}
TEST_CASE("errors of codecs stay within their bounds, and bytes shrink as they should") {
  encoded::errors_and_bytes<Cuda>();
}
TEST_CASE("codecs and duplicate removal chosen at run time are those chosen by type, to the bit") {
  encoded::chosen_by_name<Cuda>();
}
TEST_CASE("outputs in bf16 are those in float, rounded once; updates have the same bits") {
  encoded::outputs_in_bf16<Cuda>();
}
TEST_CASE("a name that is no codec's, choices that ranks do not share") {
  encoded::wrong_choices_are_refused<Cuda>();
}
TEST_CASE("messages and bytes of a step under every policy, counted by hand") {
  encoded::traffic_counted_by_hand<Cuda>();
}

TEST_CASE(
    "a rank that throws at any collective of a step: all ranks end, named, with the tables of the "
    "step before") {
  faulty::a_rank_throws_at_any_collective<Cuda>();
}
TEST_CASE("a trainer that throws between forward and backward") {
  faulty::a_trainer_throws_between_the_passes<Cuda>();
}
TEST_CASE("batches that do not fit end the step on all ranks, and say why") {
  faulty::batches_do_not_fit<Cuda>();
}
TEST_CASE(
    "ranks run out of data at different steps: empty batches go on, and the tables are those of "
    "one rank") {
  faulty::ranks_run_out_of_data<Cuda>();
}

TEST_CASE("tables in either memory: one model, to the bit") {
  tiers::any_memory_gives_one_model<Cuda>();
}

TEST_CASE("training groups: every table trains as in a collection of its optimizer, to the bit") {
  groups::tables_train_as_apart<Cuda>();
}
TEST_CASE("accumulation: losses of one forward add up, and are told from other calls") {
  groups::losses_of_one_forward_add_up<Cuda>();
}
TEST_CASE("reports: bytes, rows and stages are those of the step; the model is the same") {
  step_reports::reports_are_what_happened<Cuda>();
}
TEST_CASE("reports: accumulated batches are one step; the share that was clipped") {
  step_reports::reports_of_accumulated_steps<Cuda>();
}

TEST_CASE(
    "sequences beside sums of one id: the same bits with every optimizer, under a user's policy") {
  sequences::every_optimizer_has_the_same_bits<Cuda>();
}
TEST_CASE("sequences and max pooling beside sums, by definition") {
  sequences::by_definition<Cuda>();
}
TEST_CASE("sequences and max pooling: the same bits under every plan") {
  sequences::the_same_bits_under_every_plan<Cuda>();
}
TEST_CASE("sequences and max pooling: with gradient_blocks the same bits on 1, 2 and 4 ranks") {
  sequences::the_same_bits_on_any_number_of_ranks<Cuda>();
}
TEST_CASE("sequences and max pooling: model-parallel input gives the bits of own samples") {
  sequences::model_parallel_has_the_same_bits<Cuda>();
}
TEST_CASE("sequences: model-parallel ranks that differ are named") {
  sequences::model_parallel_ranks_that_differ<Cuda>();
}
TEST_CASE("sequences and max pooling with weights: as PyTorch has them, to the bit") {
  sequences::weights_as_pytorch<Cuda>();
}
TEST_CASE("sequences: what backward and views refuse, and nothing changes") {
  sequences::what_backward_and_views_refuse<Cuda>();
}
TEST_CASE("sequences: a row travels once per rank that asks, its gradient once back") {
  sequences::a_row_travels_once_per_rank<Cuda>();
}
TEST_CASE("sequences and max pooling: bad ids, NaN gradients, a codec, 16 bits, duplicates") {
  sequences::policies_go_along<Cuda>();
}
TEST_CASE("sequences: ids beyond the table under every policy") {
  sequences::bad_ids_under_every_policy<Cuda>();
}
TEST_CASE("sequences: stages, accumulated gradients, short ids, no offsets: the same bits") {
  sequences::other_ways_have_the_same_bits<Cuda>();
}
