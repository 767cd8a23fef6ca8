// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "collections.hpp"

#include <tessera/ids/sequence_view.hpp>
#include <tessera/optimizer/clip.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using tessera_c::call;
using tessera_c::checked;

namespace tessera_c { namespace {

Tables& tables_of(const tessera_collection* collection, std::string_view call) {
  return checked(collection, call, "collection").state->tables;
}

/// Returns the index of a table. Throws InvalidArgument for a name that there is not.
int table_of(const Tables& tables, const char* name, std::string_view call) {
  checked(name, call, "table");
  const auto& specs = tables.layout().tables;
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const tessera::TableSpec& t) { return t.name == name; });
  tessera::require(found != specs.end(), "{}: there is no table '{}'", call, name);
  return static_cast<int>(found - specs.begin());
}

std::int64_t state_columns(const Tables& tables, int table, int state, std::string_view call) {
  const auto states = tables.tables().states(table);
  tessera::require(state >= -1 && state < std::ssize(states),
                   "{}: table '{}' has no state {}; -1 is its weights, and it has {} states", call,
                   tables.layout().tables[static_cast<std::size_t>(table)].name, state,
                   states.size());
  return state >= 0 && states[static_cast<std::size_t>(state)].per_row
             ? 1
             : tables.layout().tables[static_cast<std::size_t>(table)].width;
}

/// Gradients of pooled vectors and of sequences as the collection takes them.
struct Gradients {
  Gradients(const tessera_gradients* gradients, const tessera_step& step, std::string_view call)
      : given(checked(gradients, call, "gradients")),
        pooled(matrix(given.pooled, step.samples, step.collection->tables.columns(), given.stride,
                      call, "gradients.pooled")) {
    for (const tessera_sequence_gradient& one :
         array(given.sequences, given.sequence_count, call, "gradients.sequences")) {
      const auto& layout = step.collection->tables.layout();
      tessera::require(one.feature >= 0 && one.feature < std::ssize(layout.features),
                       "{}: a gradient is of feature {}, but there are {}", call, one.feature,
                       layout.features.size());
    }
  }

  /// Of the sequences, checked against what was looked up.
  template <class Found>
  const std::vector<tessera::SequenceGradient>& of_sequences(const Found& found,
                                                             std::string_view call) {
    for (std::size_t i = 0; i < given.sequence_count; ++i) {
      const tessera_sequence_gradient& one = given.sequences[i];
      const auto view = found.sequence(one.feature);
      sequences.push_back(view.per_id(
          matrix(one.values, view.ids(), view.width(), one.stride, call, "a sequence's gradient")));
    }
    return sequences;
  }

  const tessera_gradients& given;
  tessera::MatrixView<const float> pooled;
  std::vector<tessera::SequenceGradient> sequences{};
};

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
                                   .gradient_blocks = 0};
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
    const auto text = [&](const char* value, std::string_view what) {
      return std::string(&checked(value, name, what));
    };
    auto made = std::make_unique<tessera_collection>();
    made->state = std::make_shared<tessera_c::Collection>(
        of, ranks, given.threads,
        tessera_c::Tables::Options{
            .learning_rate = given.learning_rate,
            .seed = given.seed,
            .optimizer = tessera::detail::named_optimizers(
                text(given.optimizer, "options.optimizer"),
                text(given.precision, "options.precision"), of.layout),
            .initialize = {given.initial_bound},
            .bad_ids = tessera_c::bad_ids_of(given.bad_ids, name),
            .forward_codec = text(given.codec, "options.codec"),
            .backward_codec = text(given.gradient_codec, "options.gradient_codec"),
            .deduplicate = given.deduplicate != 0,
            .gradient_blocks = given.gradient_blocks});
    *out = made.release();
  });
}

void tessera_collection_destroy(tessera_collection* collection) { delete collection; }

tessera_status tessera_step_create(tessera_collection* collection, tessera_step** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_step_create";
    checked(out, name, "out");
    auto made = std::make_unique<tessera_step>();
    made->collection = checked(collection, name, "collection").state;
    *out = made.release();
  });
}

void tessera_step_destroy(tessera_step* step) { delete step; }

tessera_status tessera_route(tessera_step* step, const tessera_batch* batch) {
  return call([&] {
    constexpr std::string_view name = "tessera_route";
    tessera_step& of = checked(step, name, "step");
    tessera_c::with_batch(batch, name, [&]<class Id>(const tessera::KeyedJagged<Id>& ids) {
      of.begin(ids, [&](auto& part) { of.collection->tables.route(part.step, ids); });
    });
  });
}

tessera_status tessera_lookup(tessera_step* step, float* output, int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_lookup";
    tessera_step& of = checked(step, name, "step");
    const auto to = tessera_c::matrix(output, of.samples, of.collection->tables.columns(), stride,
                                      name, "output");
    of.visit([&](auto& part) { part.found = of.collection->tables.forward_routed(part.step, to); });
  });
}

tessera_status tessera_evaluate(tessera_step* step, const tessera_batch* batch, float* output,
                                int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_evaluate";
    tessera_step& of = checked(step, name, "step");
    tessera_c::with_batch(batch, name, [&]<class Id>(const tessera::KeyedJagged<Id>& ids) {
      const auto to = tessera_c::matrix(output, ids.batch, of.collection->tables.columns(), stride,
                                        name, "output");
      of.begin(ids, [&](auto& part) {
        of.collection->tables.evaluate(part.step, ids, to);
        part.found = {to, &part.step, part.step.progress.turn()};
      });
    });
  });
}

tessera_status tessera_sequence(const tessera_step* step, int feature, float* output,
                                int64_t stride, int64_t* ids, int64_t* width) {
  return call([&] {
    constexpr std::string_view name = "tessera_sequence";
    checked(step, name, "step");
    const auto write = [&](const auto& part) {
      const auto view = part.found.sequence(feature);
      if (output != nullptr)
        view.materialize(
            tessera_c::matrix(output, view.ids(), view.width(), stride, name, "output"));
      if (ids != nullptr) *ids = view.ids();
      if (width != nullptr) *width = view.width();
    };
    step->is_wide ? write(step->wide) : write(step->narrow);
  });
}

tessera_status tessera_update(tessera_step* step, const tessera_gradients* gradients) {
  return call([&] {
    constexpr std::string_view name = "tessera_update";
    tessera_step& of = checked(step, name, "step");
    tessera_c::Gradients all(gradients, of, name);
    of.visit([&](auto& part) {
      const auto& sequences = all.of_sequences(part.found, name);
      if (all.given.weight_gradients == nullptr)
        of.collection->tables.backward(part.found, all.pooled, sequences);
      else
        of.collection->tables.backward(
            part.found, all.pooled, {all.given.weight_gradients, static_cast<std::size_t>(of.ids)},
            sequences);
    });
  });
}

tessera_status tessera_accumulate(tessera_step* step, const tessera_gradients* gradients) {
  return call([&] {
    constexpr std::string_view name = "tessera_accumulate";
    tessera_step& of = checked(step, name, "step");
    tessera_c::Gradients all(gradients, of, name);
    tessera::require(all.given.weight_gradients == nullptr,
                     "{}: gradients of weights come from tessera_update alone; give NULL", name);
    of.visit([&](auto& part) {
      of.collection->tables.accumulate(part.found, all.pooled, all.of_sequences(part.found, name));
    });
  });
}

tessera_status tessera_apply(tessera_collection* collection, float most_norm, float* dense,
                             size_t dense_count, double* norm) {
  return call([&] {
    constexpr std::string_view name = "tessera_apply";
    tessera_c::Tables& tables = tessera_c::tables_of(collection, name);
    tessera::require(std::isfinite(most_norm) && most_norm >= 0,
                     "{}: most_norm is {}; give 0 (gradients as they are) or more", name,
                     most_norm);
    const std::span<float> of_layers = tessera_c::array(dense, dense_count, name, "dense");
    const double found = most_norm == 0
                             ? tables.apply()
                             : tables.apply(tessera::ClipByGlobalNorm{most_norm}, of_layers);
    if (norm != nullptr) *norm = found;
  });
}

tessera_status tessera_set_learning_rate(tessera_collection* collection, const char* table,
                                         float rate) {
  return call([&] {
    constexpr std::string_view name = "tessera_set_learning_rate";
    tessera_c::Tables& tables = tessera_c::tables_of(collection, name);
    if (table == nullptr) return tables.set_learning_rate(rate);
    tessera_c::table_of(tables, table, name);
    tables.set_learning_rate(table, rate);
  });
}

tessera_status tessera_steps(const tessera_collection* collection, int64_t* steps) {
  return call([&] {
    constexpr std::string_view name = "tessera_steps";
    const std::int64_t found = tessera_c::tables_of(collection, name).steps();
    checked(steps, name, "steps") = found;
  });
}

tessera_status tessera_bad_ids(const tessera_collection* collection, uint64_t* counts,
                               size_t count) {
  return call([&] {
    constexpr std::string_view name = "tessera_bad_ids";
    const auto seen = tessera_c::tables_of(collection, name).bad_ids();
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
    const tessera_c::Tables& tables = tessera_c::tables_of(collection, name);
    const int t = tessera_c::table_of(tables, table, name);
    const auto whole =
        tessera_c::matrix(values, tables.layout().tables[static_cast<std::size_t>(t)].rows,
                          tessera_c::state_columns(tables, t, state, name), stride, name, "values");
    state < 0 ? tables.tables().get(table, whole) : tables.tables().get_state(table, state, whole);
  });
}

tessera_status tessera_gather_table(tessera_collection* collection, const char* table, int state,
                                    float* values, int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_gather_table";
    tessera_c::Tables& tables = tessera_c::tables_of(collection, name);
    tessera::AnyCommunicator& ranks = *collection->state->communicator;
    const tessera::Layout& layout = tables.layout();
    const int t = tessera_c::table_of(tables, table, name);
    const std::int64_t columns = tessera_c::state_columns(tables, t, state, name);
    const auto whole = tessera_c::matrix(values, layout.tables[static_cast<std::size_t>(t)].rows,
                                         columns, stride, name, "values");
    state < 0 ? tables.tables().get(table, whole) : tables.tables().get_state(table, state, whole);
    std::vector<float> some;
    for (const tessera::Shard& shard : layout.shards) {
      if (shard.table != t || shard.rank == tessera::every_rank || ranks.size() == 1) continue;
      // What rows have once, each part of their columns has.
      const bool per_row = columns != layout.tables[static_cast<std::size_t>(t)].width;
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
    tessera_c::Tables& tables = tessera_c::tables_of(collection, name);
    const int t = tessera_c::table_of(tables, table, name);
    const auto whole =
        tessera_c::matrix(values, tables.layout().tables[static_cast<std::size_t>(t)].rows,
                          tessera_c::state_columns(tables, t, state, name), stride, name, "values");
    state < 0 ? tables.tables().set(table, whole) : tables.tables().set_state(table, state, whole);
  });
}

tessera_status tessera_table_states(const tessera_collection* collection, const char* table,
                                    int state, int* states, int64_t* columns) {
  return call([&] {
    constexpr std::string_view name = "tessera_table_states";
    const tessera_c::Tables& tables = tessera_c::tables_of(collection, name);
    const int t = tessera_c::table_of(tables, table, name);
    const std::int64_t found = tessera_c::state_columns(tables, t, state, name);
    if (states != nullptr) *states = static_cast<int>(tables.tables().states(t).size());
    if (columns != nullptr) *columns = found;
  });
}

tessera_status tessera_reset_rows(tessera_collection* collection, const char* table,
                                  const int64_t* rows, size_t count) {
  return call([&] {
    constexpr std::string_view name = "tessera_reset_rows";
    tessera_c::Tables& tables = tessera_c::tables_of(collection, name);
    tables.reset_rows(tessera_c::table_of(tables, table, name),
                      tessera_c::array(rows, count, name, "rows"));
  });
}
