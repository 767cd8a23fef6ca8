// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/io/tensor_type.hpp>
#include <tessera/op/copy_rows.hpp>
#include <tessera/op/initialize.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/arena.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/cache_plan.hpp>
#include <tessera/tables/copy_piece.hpp>
#include <tessera/tables/group_elements.hpp>
#include <tessera/tables/matrix.hpp>
#include <tessera/tables/nearest_names.hpp>
#include <tessera/tables/non_finite_count.hpp>
#include <tessera/tables/rank_layout.hpp>
#include <tessera/tables/rank_tables.hpp>
#include <tessera/tables/row_cache.hpp>
#include <tessera/tables/training_groups.hpp>
#include <tessera/tables/widths.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The rectangles that one rank holds under a layout: weights and optimizer state, first values,
/// access by table name.
template <class WidthList, Element T, OptimizerOrGroups Trained, class Backend>
class TableStore : public detail::RankTables<Backend> {
  using Tables = detail::RankTables<Backend>;
  using Tables::backend_, Tables::layout_, Tables::training_, Tables::routing_, Tables::seed_,
      Tables::arenas_, Tables::resting_, Tables::caches_, Tables::to_slot;

 public:
  using Tables::flush, Tables::group_of, Tables::reload, Tables::table_index;
  using element = T;
  using training = Trained;
  using Groups = detail::GroupsOf<Trained>;
  /// Element types by training group; T: of those that name none.
  using Elements = detail::GroupElements<Trained, T>;
  static constexpr bool copies = WidthList::copies, cuts_columns = WidthList::cuts_columns,
                        keeps_rows = WidthList::keeps_rows;

  using typename Tables::Cache;
  /// Makes the tables. `initializers`: detail::Initializers. Throws InvalidArgument if the layout
  /// has a fault, if a table is in no training group, if the host has no memory for this rank's
  /// part, or a cache no size; DataError if a disk has no room.
  template <class Initializers>
  TableStore(const Backend& backend, Layout layout, int rank, const Trained& training,
             std::uint64_t seed, const Initializers& initializers, const TableFiles& files = {})
      : Tables(backend, std::move(layout), rank, by_table(checked(layout, rank), training), seed) {
    try {
      for (const detail::ArenaPlan& plan : routing_.arenas()) {
        caches_.emplace_back();
        if constexpr (WidthList::tiers)
          if (is_cached(plan)) {
            add_cached(plan, training, initializers, files);
            continue;
          }
        if constexpr (requires { backend.before_arena(plan.rows); })
          backend.before_arena(plan.rows);
        arenas_.push_back(make_arena(plan, plan.rows, plan.tier, training));
        initialize(plan, arenas_.back(), 0, plan.rows, initializers);
      }
    } catch (const std::bad_alloc&) {
      throw InvalidArgument(no_memory(rank));
    }
  }
  /// Calls f(std::integral_constant<int, group>).
  template <class F>
  static void with_group(int group, F&& f) {
    detail::with_training_group<Trained>(group, f);
  }

  /// Returns the type of a table's weights.
  TensorType element_type(int table) const {
    TensorType type{};
    Elements::with(group_of(table),
                   [&]<class E>(std::type_identity<E>) { type = detail::tensor_type_of<E>(); });
    return type;
  }
  /// One optimizer state of a table.
  struct StateShape {
    std::string_view name;
    bool per_row = false;  ///< [rows, 1], else [rows, width]
    TensorType type = TensorType::f32;

    std::int64_t bytes(std::int64_t rows, std::int64_t width) const {
      return rows * (per_row ? 1 : width) * std::int64_t(detail::tensor_type_size(type));
    }
  };
  /// Returns the states that a table has, those of elements first.
  std::vector<StateShape> states(int table) const { return states_of_group(group_of(table)); }

  /// Returns arena `a`, of training group I, as the update of step `step` sees it.
  template <int I, class O = typename Groups::template optimizer<I>>
  auto state(std::size_t a, std::int64_t step, const op::StepValues<O>* now = nullptr) const {
    auto state = arenas_[a].template state<typename Elements::template of<I>, O>(
        routing_.arenas()[a].segments, random_word(seed_, step));
    if (caches_[a] != nullptr) state.table_rows = caches_[a]->table_rows();
    state.now = now;
    return state;
  }

  /// Calls f.operator()<Width>(its weights) for an arena.
  template <class F>
  void with_weights(std::size_t a, F&& f) const {
    Elements::with(routing_.arenas()[a].group, [&]<class E>(std::type_identity<E>) {
      WidthList::template of<E>::dispatch(
          arenas_[a].width(), [&]<int Width>(std::integral_constant<int, Width>) {
            f.template operator()<Width>(arenas_[a].template weights<E>());
          });
    });
  }

  /// One rectangle that this rank holds.
  struct LocalShard {
    int table = 0;
    Rectangle rectangle;
    int arena = 0;               ///< index into arenas()
    std::int64_t arena_row = 0;  ///< of the first row
    bool replicated = false;     ///< every rank has a copy
    /// in memory that the host reads and writes, and the backend does not: a file's
    bool host_memory = false;
    std::shared_ptr<Cache> cache{};  ///< of these: what copies the file
    /// [rows, width]; an AnyMatrix if training groups differ in their element types
    typename Elements::Matrix weights{};
    /// [rows, width], then [rows, 1]; as in `states(table)`. An AnyMatrix if an optimizer keeps
    /// narrow states.
    std::vector<typename Elements::StateMatrix> states{};
  };

  /// Returns the rectangles that this rank holds, with their memory. Those behind a cache are seen
  /// where they stay, and may be read and written there until the next batch: see `flush`.
  std::vector<LocalShard> local_shards() const {
    flush();
    reload();
    return resting_shards();
  }

  /// Returns local_shards of this moment, without flushing caches.
  std::vector<LocalShard> resting_shards() const {
    std::vector<LocalShard> shards;
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      for (std::size_t i = 0; i < routing_.arenas()[a].shards.size(); ++i) {
        const Shard& shard = layout_.shards[routing_.arenas()[a].shards[i]];
        const std::int64_t first = routing_.arenas()[a].segments[i].row_offset,
                           rows = shard.rectangle.rows(), width = arenas_[a].width();
        Cache* const cache = caches_[a].get();
        // of a field of rows: the arena's, or where its rows stay
        const auto matrix = [&]<class V>(V* arena, std::size_t field, std::int64_t columns) {
          if (cache == nullptr) return MatrixView<V>{arena + first * columns, rows, columns};
          return MatrixView<V>{reinterpret_cast<V*>(cache->resting_rows(first, field)), rows,
                               columns,
                               cache->stride(field) / static_cast<std::int64_t>(sizeof(V))};
        };
        LocalShard local{shard.table,
                         shard.rectangle,
                         static_cast<int>(a),
                         first,
                         routing_.arenas()[a].replicated,
                         shard.tier == Tier::file && !Backend::host_readable};
        if (local.host_memory) local.cache = caches_[a];
        Elements::with(routing_.arenas()[a].group, [&]<class E>(std::type_identity<E>) {
          local.weights = matrix(arenas_[a].template weights<E>(), 0, width);
        });
        with_group(group_of(shard.table), [&](auto group) {
          using O = typename Groups::template optimizer<group()>;
          for (int k = 0; k < O::element_states; ++k)
            local.states.push_back(
                matrix(arenas_[a].template optimizer_state<StateElement<O>>(k), k + 1, width));
          for (int k = O::element_states; k < O::element_states + O::row_states; ++k)
            local.states.push_back(matrix(arenas_[a].template optimizer_state<float>(k), k + 1, 1));
        });
        shards.push_back(std::move(local));
      }
    return shards;
  }

  /// Returns the number of weights of this rank that are NaN or infinite.
  std::int64_t count_non_finite(const Backend& backend) const {
    detail::NonFiniteCount<Backend> count(backend);
    flush();
    for (const LocalShard& shard : resting_shards())
      with_matrix(shard.weights, [&]<class E>(MatrixView<E> weights) {
        count.add(MatrixView<const E>(weights), shard.host_memory);
      });
    return static_cast<std::int64_t>(count.read());
  }

  /// Gives rows of a table, where this rank holds them, their first values and a fresh optimizer
  /// state again, as if never updated. Before, tell(arena, its rows) is called.
  template <class Initializers, class Tell>
  void reset_rows(const Backend& backend, int table, std::span<const std::int64_t> rows,
                  const Trained& training, const Initializers& initializers, Tell&& tell) {
    require(table >= 0 && table < std::ssize(layout_.tables), "reset_rows: table {} of {}", table,
            layout_.tables.size());
    const TableSpec& spec = layout_.tables[table];
    for (const std::int64_t row : rows)
      require(row >= 0 && row < spec.rows, "reset_rows: table '{}' has {} rows, not row {}",
              spec.name, spec.rows, row);
    std::vector<std::int64_t> here;
    for (std::size_t a = 0; a < arenas_.size(); ++a) {
      const detail::ArenaPlan& plan = routing_.arenas()[a];
      for (std::size_t i = 0; i < plan.segments.size(); ++i) {
        if (layout_.shards[plan.shards[i]].table != table) continue;
        const op::ArenaSegment& segment = plan.segments[i];
        const std::int64_t offset = segment.row_offset - segment.row_begin;
        here.clear();
        for (const std::int64_t row : rows)
          if (row >= segment.row_begin && row < segment.row_begin + segment.rows)
            here.push_back(offset + row);
        if (here.empty()) continue;
        tell(a, std::span<const std::int64_t>(here));
        for (const std::int64_t row : here) {
          std::int64_t at = row;
          const typename Cache::Pins pins = to_slot(a, at);
          initialize(backend, plan, i, row, 1, arenas_[a], at, initializers);
          reset_state(backend, plan, arenas_[a], at, 1, training);
          pins.mark_changed();
        }
      }
    }
  }

  /// Copies this rank's rectangles from (set) or to (get) a whole table [rows, width] in host
  /// memory; other parts are left alone.
  void set(std::string_view name, MatrixView<const float> whole) { move_whole(name, -1, whole); }
  void get(std::string_view name, MatrixView<float> whole) const { move_whole(name, -1, whole); }
  /// Does the same for an optimizer state (index into `states(table)`): [rows, width], or [rows, 1]
  /// for one value per row.
  void set_state(std::string_view name, int state, MatrixView<const float> whole) {
    check_state(name, state);
    move_whole(name, state, whole);
  }
  void get_state(std::string_view name, int state, MatrixView<float> whole) const {
    check_state(name, state);
    move_whole(name, state, whole);
  }

 private:
  static std::vector<StateShape> states_of_group(int group) {
    std::vector<StateShape> states;
    with_group(group, [&](auto i) {
      using O = typename Groups::template optimizer<i()>;
      if constexpr (O::element_states + O::row_states > 0)
        for (int k = 0; k < O::element_states + O::row_states; ++k)
          states.push_back({O::state_names[k], k >= O::element_states,
                            k >= O::element_states ? TensorType::f32
                                                   : detail::tensor_type_of<StateElement<O>>()});
    });
    return states;
  }

  void check_state(std::string_view name, int state) const {
    const auto count = std::ssize(states(table_index(name)));
    require(
        state >= 0 && state < count,
        "EmbeddingCollection: the optimizer has {} states, counted from 0; there is no state {}",
        count, state);
  }

  static auto by_table(const Layout& layout, const Trained& training) {
    PodVector<detail::TableTraining> tables(layout.tables.size());
    if constexpr (Groups::count > 1 || !Optimizer<Trained>) {
      require(
          training.group_of_table.size() == tables.size(),
          "TrainingGroups: group_of_table has {} entries for {} tables; give each table's group",
          training.group_of_table.size(), tables.size());
      for (std::size_t t = 0; t < tables.size(); ++t) {
        tables[t].group = training.group_of_table[t];
        require(tables[t].group >= 0 && tables[t].group < Groups::count,
                "TrainingGroups: table '{}' is in group {}; give 0 .. {}", layout.tables[t].name,
                tables[t].group, Groups::count - 1);
      }
    }
    for (detail::TableTraining& table : tables)
      with_group(table.group, [&](auto i) {
        table.trains = Groups::trains[static_cast<std::size_t>(i())];
        table.whole_rows = Groups::template optimizer<i()>::needs_mean_square;
      });
    return tables;
  }

  std::string no_memory(int rank) const {
    std::int64_t bytes = 0;
    for (const Shard& shard : layout_.shards) {
      if (!shard.held_by(rank)) continue;
      bytes += shard.rectangle.elements() * Elements::size(group_of(shard.table));
      for (const StateShape& state : states(shard.table))
        bytes += state.bytes(shard.rectangle.rows(), shard.rectangle.width());
    }
    return formatted(
        "EmbeddingCollection: no memory for the tables of rank {}: {} bytes with the optimizer's "
        "state; use more ranks, or 16-bit storage",
        rank, bytes);
  }

  static const Layout& checked(const Layout& layout, int rank) {
    if (!layout.fault.ok()) throw InvalidArgument(describe(layout.fault));
    for (const Shard& shard : layout.shards) {
      const TableSpec& table = layout.tables[shard.table];
      require((cuts_columns || shard.rectangle.width() == table.width) &&
                  WidthList::has(shard.rectangle.width()),
              "EmbeddingCollection: table '{}' has a shard of {} columns, which its policy's "
              "whole_rows "
              "or column_parts rules out",
              table.name, shard.rectangle.width());
      require(copies || shard.rank != every_rank || layout.ranks() == 1,
              "EmbeddingCollection: a policy with whole_rows or column_parts copies table '{}' on "
              "{} ranks, but "
              "not on two",
              table.name, layout.ranks());
      require(
          WidthList::tiers || shard.tier == Tier::device,
          "EmbeddingCollection: a policy with whole_rows or column_parts keeps table '{}' out of "
          "the device's memory on {} ranks, but not on 1, 2 and 4",
          table.name, layout.ranks());
    }
    require(rank >= 0 && rank < layout.ranks(),
            "EmbeddingCollection: the layout is for {} ranks, this is rank {}; make it for "
            "communicator.size() ranks",
            layout.ranks(), rank);
    return layout;
  }

  /// Returns the bytes of a row of an arena: of its weights, then of each state.
  static std::vector<std::int64_t> row_bytes(const detail::ArenaPlan& plan) {
    std::vector<std::int64_t> bytes{plan.width * Elements::size(plan.group)};
    for (const StateShape& state : states_of_group(plan.group))
      bytes.push_back(state.bytes(1, plan.width));
    return bytes;
  }

  /// Makes so many rows of an arena, with a fresh state and without first values.
  detail::Arena<Backend> make_arena(const detail::ArenaPlan& plan, std::int64_t rows, Tier tier,
                                    const Trained& training) const {
    detail::Arena<Backend> arena(backend_, rows, plan.width, row_bytes(plan), tier);
    reset_state(backend_, plan, arena, 0, rows, training);
    return arena;
  }
  void reset_state(const Backend& backend, const detail::ArenaPlan& plan,
                   const detail::Arena<Backend>& arena, std::int64_t first, std::int64_t count,
                   const Trained& training) const {
    with_group(plan.group, [&](auto group) {
      arena.reset_state(backend, first, count, Groups::template get<group()>(training));
    });
  }

  /// Writes first values of `count` rows of segment `i` from arena row `first` on, in the rows of
  /// `arena` from `at` on.
  template <class Initializers>
  void initialize(const Backend& backend, const detail::ArenaPlan& plan, std::size_t i,
                  std::int64_t first, std::int64_t count, const detail::Arena<Backend>& arena,
                  std::int64_t at, const Initializers& initializers) const {
    const op::ArenaSegment& segment = plan.segments[i];
    const std::int64_t table_rows = layout_.tables[layout_.shards[plan.shards[i]].table].rows;
    with_group(plan.group, [&](auto group) {
      const auto initializer = initializers.template of<group()>();
      using E = std::decay_t<typename Elements::template of<group()>>;  // see KernelsOf
      op::run<op::Initialize<E, std::remove_cvref_t<decltype(initializer)>>>(
          backend, {arena.template weights<E>() + at * arena.width(),
                    count,
                    arena.width(),
                    {seed_, segment.table_key, table_rows,
                     segment.row_begin + first - segment.row_offset, segment.column_begin},
                    initializer});
    });
  }
  /// Writes those of `count` arena rows from `begin` on, in the first rows of `arena`.
  template <class Initializers>
  void initialize(const detail::ArenaPlan& plan, const detail::Arena<Backend>& arena,
                  std::int64_t begin, std::int64_t count, const Initializers& initializers) const {
    for (std::size_t i = 0; i < plan.segments.size(); ++i) {
      const op::ArenaSegment& segment = plan.segments[i];
      const std::int64_t first = std::max(begin, segment.row_offset),
                         last = std::min(begin + count, segment.row_offset + segment.rows);
      if (first < last)
        initialize(backend_, plan, i, first, last - first, arena, first - begin, initializers);
    }
  }

  /// Returns whether an arena's rows are behind a cache. The host's own kernels need none for its
  /// memory.
  static bool is_cached(const detail::ArenaPlan& plan) {
    return plan.tier == Tier::file ||
           (plan.tier == Tier::host && plan.cache_rows != 0 && !Backend::host_readable);
  }

  template <class Initializers>
  void add_cached(const detail::ArenaPlan& plan, const Trained& training,
                  const Initializers& initializers, const TableFiles& files) {
    detail::RecordFormat format;
    for (const std::int64_t bytes : row_bytes(plan)) format.add(bytes);
    std::int64_t bytes_on_file = 0;  // of all arenas that share the memory for caches
    for (const detail::ArenaPlan& other : routing_.arenas())
      if (other.tier == Tier::file && other.cache_rows == 0) bytes_on_file += bytes_of(other);
    const std::int64_t rows = detail::cache_slots(layout_, plan, files, bytes_on_file);
    arenas_.push_back(make_arena(plan, rows, Tier::device, training));
    const detail::Arena<Backend>& slots = arenas_.back();
    const auto made = std::make_shared<detail::RowCache<Backend>>(
        backend_, rows, slots.fields(), std::move(format),
        detail::cache_name(layout_, plan, routing_.rank()));
    caches_.back() = made;
    detail::RowCache<Backend>& cache = *made;
    if (plan.tier == Tier::host) {
      resting_.push_back(make_arena(plan, plan.rows, Tier::host, training));
      initialize(plan, resting_.back(), 0, plan.rows, initializers);
      return cache.in_memory(resting_.back().fields());
    }
    std::vector<detail::FieldName> fields{
        {"weights", tensor_type_name(element_type(layout_.shards[plan.shards[0]].table))}};
    for (const StateShape& state : states_of_group(plan.group))
      fields.push_back({state.name, tensor_type_name(state.type)});
    detail::add_files(cache.in_files(files.queue_depth), files, layout_, plan, routing_.rank(),
                      cache.format(), fields);
    cache.fill_all(plan.rows, [&](std::int64_t first, std::int64_t count) {
      initialize(plan, slots, first, count, initializers);
    });
  }
  /// Returns the bytes of an arena's rows, state and place in a cache included.
  static std::int64_t bytes_of(const detail::ArenaPlan& plan) {
    const std::vector<std::int64_t> bytes = row_bytes(plan);
    return plan.rows * std::accumulate(bytes.begin(), bytes.end(), detail::cache_slot_bytes);
  }

  /// Moves from or to a whole table; `state` -1: its weights.
  template <class U>
  void move_whole(std::string_view name, int state, MatrixView<U> whole) const {
    for_each_piece(name, state, whole,
                   [&](const auto& memory, const LocalShard& shard, auto... at) {
                     state < 0 ? detail::move_piece(memory, shard.weights, at...)
                               : detail::move_piece(memory, shard.states.at(state), at...);
                   });
    if constexpr (std::is_const_v<U>) reload();
  }

  /// Visits the parts of a whole table that this rank holds, a few megabytes at a time:
  /// visit(what copies from and to the shard's memory, shard, part, first row of the shard).
  template <class U, class Visit>
  void for_each_piece(std::string_view name, int state, MatrixView<U> whole, Visit&& visit) const {
    const int index = table_index(name);
    const TableSpec& table = layout_.tables[index];
    const bool per_row = state >= 0 && states(index)[static_cast<std::size_t>(state)].per_row;
    require(whole.rows == table.rows && whole.columns == (per_row ? 1 : table.width),
            "table '{}' is [{}, {}], the matrix given [{}, {}]", name, table.rows,
            per_row ? 1 : table.width, whole.rows, whole.columns);
    detail::check_view("the matrix given for a table", whole);
    flush();
    for (const LocalShard& shard : resting_shards()) {
      if (shard.table != index) continue;
      const Rectangle& r = shard.rectangle;
      const MatrixView<U> columns = per_row ? whole : whole.column_range(r.column_begin, r.width());
      const std::int64_t rows_at_once =
          std::max<std::int64_t>(1, (std::int64_t{1} << 20) / columns.columns);
      for (std::int64_t first = 0; first < r.rows(); first += rows_at_once) {
        const auto part =
            columns.row_range(r.row_begin + first, std::min(rows_at_once, r.rows() - first));
        shard.host_memory ? visit(detail::HostMemory{}, shard, part, first)
                          : visit(backend_, shard, part, first);
      }
    }
  }
};

}}}  // namespace tessera::v0::detail
