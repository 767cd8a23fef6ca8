// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "collections.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using tessera_c::call;
using tessera_c::checked;

namespace tessera_c { namespace {

InUse in_use(const tessera_collection* collection, std::string_view call) {
  return InUse(*checked(collection, call, "collection").state);
}

/// Returns each rank's device. Throws InvalidArgument if some have none. Collective.
std::vector<std::int32_t> devices_of_ranks(tessera::AnyCommunicator& ranks, std::int32_t own,
                                           std::string_view call) {
  const std::vector<std::int32_t> all = tessera::detail::gather_one(ranks, own);
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  tessera::require((*least < 0) == (*most < 0),
                   "{}: ranks differ: rank {} has its tables in host memory, rank {} on GPU {}",
                   call, least - all.begin(), most - all.begin(), *most);
  return all;
}

/// Returns the index of a table. Throws InvalidArgument for a name that there is not.
int table_of(const Collection& of, const char* name, std::string_view call) {
  checked(name, call, "table");
  const auto& specs = of.layout().tables;
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const tessera::TableSpec& t) { return t.name == name; });
  tessera::require(found != specs.end(), "{}: there is no table '{}'", call, name);
  return static_cast<int>(found - specs.begin());
}

std::int64_t state_columns(const Collection& of, int table, int state, std::string_view call) {
  const std::vector<bool> one_column = of.states(table);
  const tessera::TableSpec& spec = of.layout().tables[static_cast<std::size_t>(table)];
  tessera::require(state >= -1 && state < std::ssize(one_column),
                   "{}: table '{}' has no state {}; -1 is its weights, and it has {} states", call,
                   spec.name, state, one_column.size());
  return state >= 0 && one_column[static_cast<std::size_t>(state)] ? 1 : spec.width;
}

/// A whole table of the caller's, or a state of it, in host memory.
template <class T>
tessera::MatrixView<T> whole_table(const Collection& of, const char* table, int state, T* values,
                                   std::int64_t stride, std::string_view call) {
  const int t = table_of(of, table, call);
  return matrix(values, of.layout().tables[static_cast<std::size_t>(t)].rows,
                state_columns(of, t, state, call), stride, call, "values");
}

/// Calls f(KeyedJagged<Id>) with a caller's batch, which is in the memory of the tables.
template <class F>
void with_batch_of(const Collection& of, const tessera_batch* batch, std::string_view call, F&& f) {
  with_batch(batch, call, [&]<class Id>(const tessera::KeyedJagged<Id>& ids) {
    if (!ids.ids.empty()) of.require_memory(ids.ids.data(), call, "ids");
    if (!ids.offsets.empty()) of.require_memory(ids.offsets.data(), call, "offsets");
    if (!ids.weights.empty()) of.require_memory(ids.weights.data(), call, "weights");
    f(ids);
  });
}

/// A matrix of the caller's in the memory of the tables, with a column for each of pooled vectors.
template <class T>
tessera::MatrixView<T> pooled_matrix(const Collection& of, T* values, std::int64_t samples,
                                     std::int64_t stride, std::string_view call,
                                     std::string_view what) {
  const auto view = matrix(values, samples, of.columns(), stride, call, what);
  if (view.rows > 0 && view.columns > 0) of.require_memory(values, call, what);
  return view;
}

/// Gradients of the step's batch, checked as far as its sequences are not asked for.
Gradients gradients_of(const Collection& of, const tessera_step& step,
                       const tessera_gradients* gradients, std::string_view call) {
  const tessera_gradients& given = checked(gradients, call, "gradients");
  Gradients all{
      pooled_matrix(of, given.pooled, step.state->samples, given.stride, call, "gradients.pooled"),
      array(given.sequences, given.sequence_count, call, "gradients.sequences")};
  const std::size_t features = of.layout().features.size();
  for (const tessera_sequence_gradient& one : all.sequences) {
    tessera::require(one.feature >= 0 && static_cast<std::size_t>(one.feature) < features,
                     "{}: a gradient is of feature {}, but there are {}", call, one.feature,
                     features);
    if (one.values != nullptr) of.require_memory(one.values, call, "a sequence's gradient");
  }
  if (given.weight_gradients != nullptr) {
    all.weights = {given.weight_gradients, static_cast<std::size_t>(step.state->ids)};
    if (!all.weights.empty())
      of.require_memory(given.weight_gradients, call, "gradients.weight_gradients");
  }
  return all;
}

}  // namespace
}  // namespace tessera_c

tessera_status tessera_collection_defaults(tessera_collection_options* options) {
  return call([&] {
    checked(options, "tessera_collection_defaults", "options") =
        tessera_collection_options{.struct_size = sizeof(tessera_collection_options),
                                   .optimizer = "sgd",
                                   .precision = "fp32",
                                   .codec = "fp32",
                                   .gradient_codec = "fp32",
                                   .learning_rate = 0.01f,
                                   .initial_bound = -1,
                                   .seed = 0,
                                   .threads = 1,
                                   .deduplicate = 0,
                                   .bad_ids = 0,
                                   .gradient_blocks = 0,
                                   .device = -1,
                                   .stream = nullptr};
  });
}

tessera_status tessera_collection_create(tessera_communicator* communicator,
                                         const tessera_layout* layout,
                                         const tessera_collection_options* options,
                                         tessera_collection** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_collection_create";
    const tessera_communicator& ranks = checked(communicator, name, "communicator");
    const tessera_layout& of = checked(layout, name, "layout");
    const tessera_collection_options& given = tessera_c::sized(options, name, "options");
    checked(out, name, "out");
    for (const auto& [text, what] :
         {std::pair(given.optimizer, "options.optimizer"),
          std::pair(given.precision, "options.precision"), std::pair(given.codec, "options.codec"),
          std::pair(given.gradient_codec, "options.gradient_codec")})
      checked(text, name, what);
    tessera_c::bad_ids_of(given.bad_ids, name);
    tessera::require(given.initial_bound <= std::numeric_limits<float>::max() / 2,
                     "{}: initial_bound is {}; give a number up to 1.7e38", name,
                     given.initial_bound);
    tessera::require(given.device >= -1,
                     "{}: options.device is {}; give -1 (host memory) or the number of a GPU", name,
                     given.device);
    tessera::require(given.device >= 0 || given.stream == nullptr,
                     "{}: options.stream is of a GPU, but options.device is -1 (host memory)",
                     name);
    auto made = std::make_unique<tessera_collection>();
    const std::vector<std::int32_t> devices =
        tessera_c::devices_of_ranks(*ranks.any, given.device, name);
    made->state = given.device < 0 ? tessera_c::make_host_collection(of, ranks, given)
                                   : tessera_c::make_cuda_collection(of, ranks, given, devices);
    *out = made.release();
  });
}

void tessera_collection_destroy(tessera_collection* collection) { delete collection; }

tessera_status tessera_step_create(tessera_collection* collection, tessera_step** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_step_create";
    checked(out, name, "out");
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    auto made = std::make_unique<tessera_step>();
    made->collection = collection->state;
    made->state = of->make_step();
    *out = made.release();
  });
}

void tessera_step_destroy(tessera_step* step) {
  static_cast<void>(call([&] {
    if (step == nullptr) return;
    const auto collection = step->collection;  // until the step's memory is gone
    const tessera_c::InUse of(*collection);
    delete step;
  }));
}

tessera_status tessera_route(tessera_step* step, const tessera_batch* batch) {
  return call([&] {
    constexpr std::string_view name = "tessera_route";
    const tessera_c::InUse of(*checked(step, name, "step").collection);
    tessera_c::with_batch_of(*of, batch, name, [&](const auto& ids) { step->state->route(ids); });
  });
}

tessera_status tessera_lookup(tessera_step* step, float* output, int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_lookup";
    const tessera_c::InUse of(*checked(step, name, "step").collection);
    step->state->look_up(
        tessera_c::pooled_matrix(*of, output, step->state->samples, stride, name, "output"));
  });
}

tessera_status tessera_evaluate(tessera_step* step, const tessera_batch* batch, float* output,
                                int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_evaluate";
    const tessera_c::InUse of(*checked(step, name, "step").collection);
    tessera_c::with_batch_of(*of, batch, name, [&](const auto& ids) {
      step->state->evaluate(
          ids, tessera_c::pooled_matrix(*of, output, ids.batch, stride, name, "output"));
    });
  });
}

tessera_status tessera_sequence(const tessera_step* step, int feature, float* output,
                                int64_t stride, int64_t* ids, int64_t* width) {
  return call([&] {
    constexpr std::string_view name = "tessera_sequence";
    const tessera_c::InUse of(*checked(step, name, "step").collection);
    if (output != nullptr) of->require_memory(output, name, "output");
    std::int64_t count = 0, columns = 0;
    step->state->write_sequence(feature, output, stride, count, columns, name);
    if (ids != nullptr) *ids = count;
    if (width != nullptr) *width = columns;
  });
}

tessera_status tessera_update(tessera_step* step, const tessera_gradients* gradients) {
  return call([&] {
    constexpr std::string_view name = "tessera_update";
    const tessera_c::InUse of(*checked(step, name, "step").collection);
    step->state->update(tessera_c::gradients_of(*of, *step, gradients, name), name);
  });
}

tessera_status tessera_accumulate(tessera_step* step, const tessera_gradients* gradients) {
  return call([&] {
    constexpr std::string_view name = "tessera_accumulate";
    const tessera_c::InUse of(*checked(step, name, "step").collection);
    const tessera_c::Gradients all = tessera_c::gradients_of(*of, *step, gradients, name);
    tessera::require(gradients->weight_gradients == nullptr,
                     "{}: gradients of weights come from tessera_update alone; give NULL", name);
    step->state->accumulate(all, name);
  });
}

tessera_status tessera_apply(tessera_collection* collection, float most_norm, float* dense,
                             size_t dense_count, double* norm) {
  return call([&] {
    constexpr std::string_view name = "tessera_apply";
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    tessera::require(std::isfinite(most_norm) && most_norm >= 0,
                     "{}: most_norm is {}; give 0 (gradients as they are) or more", name,
                     most_norm);
    const std::span<float> of_layers = tessera_c::array(dense, dense_count, name, "dense");
    if (!of_layers.empty()) of->require_memory(dense, name, "dense");
    const double found = of->apply(most_norm, of_layers);
    if (norm != nullptr) *norm = found;
  });
}

tessera_status tessera_set_learning_rate(tessera_collection* collection, const char* table,
                                         float rate) {
  return call([&] {
    constexpr std::string_view name = "tessera_set_learning_rate";
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    if (table == nullptr) return of->set_learning_rate(rate);
    tessera_c::table_of(*of, table, name);
    of->set_learning_rate(table, rate);
  });
}

tessera_status tessera_steps(const tessera_collection* collection, int64_t* steps) {
  return call([&] {
    constexpr std::string_view name = "tessera_steps";
    const std::int64_t found = tessera_c::in_use(collection, name)->steps();
    checked(steps, name, "steps") = found;
  });
}

tessera_status tessera_bad_ids(const tessera_collection* collection, uint64_t* counts,
                               size_t count) {
  return call([&] {
    constexpr std::string_view name = "tessera_bad_ids";
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    const auto seen = of->bad_ids();
    const auto out = tessera_c::array(counts, count, name, "counts");
    tessera::require(out.size() == seen.size(), "{}: room for {} counts, but there are {} tables",
                     name, out.size(), seen.size());
    std::copy(seen.begin(), seen.end(), out.begin());
  });
}

tessera_status tessera_read_table(const tessera_collection* collection, const char* table,
                                  int state, float* values, int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_read_table";
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    of->get(table, state, tessera_c::whole_table(*of, table, state, values, stride, name));
  });
}

tessera_status tessera_gather_table(tessera_collection* collection, const char* table, int state,
                                    float* values, int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_gather_table";
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    const auto whole = tessera_c::whole_table(*of, table, state, values, stride, name);
    of->get(table, state, whole);
    tessera::AnyCommunicator& ranks = *of->communicator;
    const tessera::Layout& layout = of->layout();
    const int t = tessera_c::table_of(*of, table, name);
    std::vector<float> some;
    for (const tessera::Shard& shard : layout.shards) {
      if (shard.table != t || shard.rank == tessera::every_rank || ranks.size() == 1) continue;
      // What rows have once, each part of their columns has.
      const bool per_row = whole.columns != layout.tables[static_cast<std::size_t>(t)].width;
      const tessera::Rectangle& r = shard.rectangle;
      const auto part = per_row ? whole : whole.column_range(r.column_begin, r.width());
      const std::int64_t at_once =
          std::max<std::int64_t>(1, (std::int64_t{1} << 20) / part.columns);
      for (std::int64_t begin = r.row_begin; begin < r.row_end; begin += at_once) {
        const auto rows = part.row_range(begin, std::min(at_once, r.row_end - begin));
        some.resize(static_cast<std::size_t>(rows.rows * rows.columns));
        const auto for_each_row = [&](auto&& copy) {
          for (std::int64_t i = 0; i < rows.rows; ++i)
            copy(rows.row(i), some.data() + i * rows.columns);
        };
        if (ranks.rank() == shard.rank)
          for_each_row([&](const float* row, float* to) { std::copy_n(row, rows.columns, to); });
        ranks.broadcast(std::span(some), shard.rank);
        for_each_row([&](float* row, const float* from) { std::copy_n(from, rows.columns, row); });
      }
    }
  });
}

tessera_status tessera_write_table(tessera_collection* collection, const char* table, int state,
                                   const float* values, int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_write_table";
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    of->set(table, state, tessera_c::whole_table(*of, table, state, values, stride, name));
  });
}

tessera_status tessera_table_states(const tessera_collection* collection, const char* table,
                                    int state, int* states, int64_t* columns) {
  return call([&] {
    constexpr std::string_view name = "tessera_table_states";
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    const int t = tessera_c::table_of(*of, table, name);
    const std::int64_t found = tessera_c::state_columns(*of, t, state, name);
    if (states != nullptr) *states = static_cast<int>(of->states(t).size());
    if (columns != nullptr) *columns = found;
  });
}

tessera_status tessera_reset_rows(tessera_collection* collection, const char* table,
                                  const int64_t* rows, size_t count) {
  return call([&] {
    constexpr std::string_view name = "tessera_reset_rows";
    const tessera_c::InUse of = tessera_c::in_use(collection, name);
    of->reset_rows(tessera_c::table_of(*of, table, name),
                   tessera_c::array(rows, count, name, "rows"));
  });
}
