// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/op/initialize.hpp>
#include <tessera/op/mark_rows.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/arena.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/non_finite_count.hpp>
#include <tessera/tables/rank_layout.hpp>
#include <tessera/tables/training_groups.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// Row widths for which kernels are compiled; any other width is served by the kernels for widths
/// known at run time.
template <int... W>
struct Widths {
  /// Whether layouts may have copies on every rank, cut columns, and features whose rows come as
  /// they are (sequences, max pooling): the code for them is compiled.
  static constexpr bool copies = true, cuts_columns = true, keeps_rows = true;
  /// Calls `f` with the width as a constant where it is one of these, else with op::dynamic_width.
  template <class F>
  static void dispatch(int width, F&& f) {
    const bool known = ((W == width && (f(std::integral_constant<int, W>{}), true)) || ...);
    if (!known) f(std::integral_constant<int, op::dynamic_width>{});
  }
};

namespace detail {
/// Throws InvalidArgument where rows would overlap or there is no memory.
template <class T>
void check_view(std::string_view what, MatrixView<T> matrix) {
  require(matrix.rows <= 1 || matrix.stride >= matrix.columns,
          "{} has a stride of {}, less than its {} columns", what, matrix.stride, matrix.columns);
  require(matrix.data != nullptr || matrix.rows <= 0 || matrix.columns <= 0,
          "{} is [{}, {}], but its data is null", what, matrix.rows, matrix.columns);
}

/// The number of characters to insert, remove or replace that turn one text into the other.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

/// The names most like `name`, and how many more there are.
inline std::string nearest_names(std::string_view name, std::vector<std::string_view> names) {
  constexpr std::size_t most = 5;
  std::stable_sort(names.begin(), names.end(), [name](std::string_view a, std::string_view b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text.empty() ? "none" : text;
}

/// A matrix in a buffer. Throws InvalidArgument for more than any memory holds.
template <class Backend>
MatrixView<float> make_matrix(const Backend& backend, Buffer<float, Backend>& buffer,
                              std::int64_t rows, std::int64_t columns) {
  require(columns == 0 || rows <= std::numeric_limits<std::int64_t>::max() / 4 / columns,
          "forward: {} samples of {} columns are more than any memory holds", rows, columns);
  buffer.resize(backend, static_cast<std::size_t>(rows * columns));
  return {buffer.data(), rows, columns};
}

/// The widths of a plan whose features are all pooled by sums.
template <int... W>
struct PooledRows : Widths<W...> {
  static constexpr bool keeps_rows = false;
};

/// The widths of a plan that cuts no columns: there are no others.
template <bool Copies, bool KeepsRows, int... W>
struct WholeRows {
  static constexpr bool copies = Copies, cuts_columns = false, keeps_rows = KeepsRows;
  template <class F>
  static void dispatch(int width, F&& f) {
    static_cast<void>(((W == width && (f(std::integral_constant<int, W>{}), true)) || ...));
  }
};

/// The widths of a plan's shards as a list.
template <class PlanT, class Sequence = std::make_index_sequence<PlanT::widths.size()>>
struct WidthsOf;
template <class PlanT, std::size_t... I>
struct WidthsOf<PlanT, std::index_sequence<I...>> {
  using type = std::conditional_t<PlanT::keeps_rows, Widths<PlanT::widths[I]...>,
                                  PooledRows<PlanT::widths[I]...>>;
};
template <class PlanT, std::size_t... I>
  requires(PlanT::whole_rows)
struct WidthsOf<PlanT, std::index_sequence<I...>> {
  using type = WholeRows<PlanT::replicates, PlanT::keeps_rows, PlanT::widths[I]...>;
};
}  // namespace detail

/// The rectangles that one rank holds under a layout: weights and optimizer state, first values,
/// access by table name.
template <class WidthList, Element T, OptimizerOrGroups Trained, class Backend>
class TableStore {
 public:
  using element = T;
  using training = Trained;
  using Groups = detail::GroupsOf<Trained>;
  static constexpr bool copies = WidthList::copies, cuts_columns = WidthList::cuts_columns,
                        keeps_rows = WidthList::keeps_rows;

  /// `initializers`: detail::Initializers. Throws InvalidArgument if the layout has a fault, if a
  /// table is in no training group, or if the host has no memory for this rank's part.
  template <class Initializers>
  TableStore(const Backend& backend, Layout layout, int rank, const Trained& training,
             std::uint64_t seed, const Initializers& initializers)
      : backend_(backend),
        layout_(checked(std::move(layout), rank)),
        training_(by_table(layout_, training)),
        routing_(layout_, rank, training_),
        seed_(seed) {
    try {
      for (const ArenaPlan& plan : routing_.arenas())
        with_group(plan.group, [&](auto group) {
          arenas_.emplace_back(backend, plan.rows, plan.width,
                               Groups::template get<group()>(training), plan.tier);
          initialize(backend, plan, arenas_.back(), initializers.template of<group()>());
        });
    } catch (const std::bad_alloc&) {
      throw InvalidArgument(no_memory(rank));
    }
  }
  TableStore(const TableStore&) = delete;
  TableStore& operator=(const TableStore&) = delete;

  const Layout& layout() const { return layout_; }
  const RankLayout& routing() const { return routing_; }
  const std::vector<Arena<T, Backend>>& arenas() const { return arenas_; }

  /// The training group of a table.
  int group_of(int table) const { return training_[static_cast<std::size_t>(table)].group; }
  /// f(std::integral_constant<int, group>).
  template <class F>
  static void with_group(int group, F&& f) {
    detail::with_training_group<Trained>(group, f);
  }

  /// One optimizer state of a table.
  struct StateShape {
    std::string_view name;
    bool per_row = false;  ///< [rows, 1], else [rows, width]
  };
  /// Those that a table has, those of elements first.
  std::vector<StateShape> states(int table) const { return states_of_group(group_of(table)); }

  /// The seed of stochastic rounding, and of the first values.
  std::uint64_t seed() const { return seed_; }
  void set_seed(std::uint64_t seed) { seed_ = seed; }

  /// Arena `a` as the update of step `step` sees it.
  template <Optimizer O>
  op::ArenaState<T, O> state(std::size_t a, std::int64_t step,
                             const op::StepValues<O>* now = nullptr) const {
    auto state =
        arenas_[a].template state<O>(routing_.arenas()[a].segments, random_word(seed_, step));
    state.now = now;
    return state;
  }

  template <class F>
  static void with_width(int width, F&& f) {
    WidthList::dispatch(width, f);
  }

  /// One rectangle that this rank holds.
  struct LocalShard {
    int table = 0;
    Rectangle rectangle;
    /// index into arenas()
    int arena = 0;
    /// where the first row stands there
    std::int64_t arena_row = 0;
    /// every rank has a copy
    bool replicated = false;
    MatrixView<element> weights;  ///< [rows, width]
    /// [rows, width], then [rows, 1]; as in `states(table)`
    std::vector<MatrixView<float>> states;
  };

  /// The rectangles that this rank holds, with their memory.
  std::vector<LocalShard> local_shards() const {
    std::vector<LocalShard> shards;
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      for (std::size_t i = 0; i < routing_.arenas()[a].shards.size(); ++i) {
        const Shard& shard = layout_.shards[routing_.arenas()[a].shards[i]];
        const std::int64_t first = routing_.arenas()[a].segments[i].row_offset,
                           rows = shard.rectangle.rows(), width = arenas_[a].width();
        LocalShard local{shard.table,
                         shard.rectangle,
                         static_cast<int>(a),
                         first,
                         routing_.arenas()[a].replicated,
                         {arenas_[a].weights() + first * width, rows, width},
                         {}};
        int k = 0;
        for (const StateShape& state : states(shard.table)) {
          const std::int64_t floats = state.per_row ? 1 : width;
          local.states.push_back({arenas_[a].optimizer_state(k++) + first * floats, rows, floats});
        }
        shards.push_back(std::move(local));
      }
    return shards;
  }

  /// Weights of this rank that are NaN or infinite.
  std::int64_t count_non_finite(const Backend& backend) const {
    NonFiniteCount<Backend> count(backend);
    for (const Arena<T, Backend>& arena : arenas_)
      count.add(MatrixView<const T>{arena.weights(), arena.rows(), arena.width()});
    return static_cast<std::int64_t>(count.read());
  }

  /// Where this rank holds them, rows of a table get their first values and a fresh optimizer state
  /// again, as if never updated. Before, tell(arena, its rows) is called.
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
      const ArenaPlan& plan = routing_.arenas()[a];
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
        with_group(plan.group, [&](auto group) {
          const auto initializer = initializers.template of<group()>();
          for (const std::int64_t at : here) {
            op::run<op::Initialize<T, std::remove_cvref_t<decltype(initializer)>>>(
                backend, {arenas_[a].weights() + at * arenas_[a].width(),
                          1,
                          arenas_[a].width(),
                          {seed_, segment.table_key, spec.rows, at - offset, segment.column_begin},
                          initializer});
            arenas_[a].reset_state(backend, at, 1, Groups::template get<group()>(training));
          }
        });
      }
    }
  }

  /// Copies rows of a shard's matrix, `stride` bytes apart, one after another into the host's
  /// memory, and waits for them. For backends whose memory the host cannot read.
  void fetch_rows(const std::byte* from, std::int64_t stride, std::span<const std::int64_t> rows,
                  std::int64_t row_bytes, std::byte* to) const {
    const std::size_t bytes = rows.size() * static_cast<std::size_t>(row_bytes);
    Buffer<std::int64_t, Backend> numbers;
    Buffer<std::byte, Backend> block;
    numbers.resize(backend_, rows.size());
    block.resize(backend_, bytes);
    backend_.copy(numbers.data(), rows.data(), rows.size_bytes());
    op::run<op::GatherRows>(
        backend_, {from, stride, numbers.data(), std::ssize(rows), row_bytes, block.data()});
    backend_.copy(to, block.data(), bytes);
    backend_.synchronize();
  }

  /// Index of a table of the plan. Throws InvalidArgument if there is none of that name.
  int table_index(std::string_view name) const {
    for (std::size_t t = 0; t < layout_.tables.size(); ++t)
      if (layout_.tables[t].name == name) return static_cast<int>(t);
    std::vector<std::string_view> names;
    for (const TableSpec& table : layout_.tables) names.push_back(table.name);
    throw InvalidArgument(fmt::format("EmbeddingCollection: the plan has no table '{}'; it has {}",
                                      name, detail::nearest_names(name, names)));
  }

  /// Copies this rank's rectangles from (set) or to (get) a whole table [rows, width] in host
  /// memory; other parts are left alone.
  void set(std::string_view name, MatrixView<const float> whole) {
    for_each_piece(name, -1, whole,
                   [&](const LocalShard& shard, MatrixView<const float> piece, std::int64_t first) {
                     write(shard.weights, piece, first);
                   });
  }
  void get(std::string_view name, MatrixView<float> whole) const {
    for_each_piece(name, -1, whole,
                   [&](const LocalShard& shard, MatrixView<float> piece, std::int64_t first) {
                     read(shard.weights, piece, first);
                   });
  }
  /// The same for an optimizer state (index into `states(table)`): [rows, width], or [rows, 1] for
  /// one value per row.
  void set_state(std::string_view name, int state, MatrixView<const float> whole) {
    check_state(name, state);
    for_each_piece(name, state, whole,
                   [&](const LocalShard& shard, MatrixView<const float> piece, std::int64_t first) {
                     write(shard.states.at(state), piece, first);
                   });
  }
  void get_state(std::string_view name, int state, MatrixView<float> whole) const {
    check_state(name, state);
    for_each_piece(name, state, whole,
                   [&](const LocalShard& shard, MatrixView<float> piece, std::int64_t first) {
                     read(shard.states.at(state), piece, first);
                   });
  }

 private:
  static std::vector<StateShape> states_of_group(int group) {
    std::vector<StateShape> states;
    with_group(group, [&](auto i) {
      using O = typename Groups::template optimizer<i()>;
      if constexpr (O::element_states + O::row_states > 0)
        for (int k = 0; k < O::element_states + O::row_states; ++k)
          states.push_back({O::state_names[k], k >= O::element_states});
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

  static std::vector<TableTraining> by_table(const Layout& layout, const Trained& training) {
    std::vector<TableTraining> tables(layout.tables.size());
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
    for (TableTraining& table : tables)
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
      bytes += shard.rectangle.elements() * static_cast<std::int64_t>(sizeof(T));
      for (const StateShape& state : states(shard.table))
        bytes += 4 * (state.per_row ? shard.rectangle.rows() : shard.rectangle.elements());
    }
    return fmt::format(
        "EmbeddingCollection: no memory for the tables of rank {}: {} bytes with the optimizer's "
        "state; use more ranks, or 16-bit storage",
        rank, bytes);
  }

  static Layout checked(Layout layout, int rank) {
    if (!layout.fault.ok()) throw InvalidArgument(describe(layout.fault));
    for (const Shard& shard : layout.shards) {
      const TableSpec& table = layout.tables[shard.table];
      require(
          cuts_columns || shard.rectangle.width() == table.width,
          "EmbeddingCollection: table '{}' is cut into columns by a policy that says whole_rows",
          table.name);
      require(copies || shard.rank != every_rank || layout.ranks() == 1,
              "EmbeddingCollection: a policy with whole_rows copies table '{}' on {} ranks, but "
              "not on two",
              table.name, layout.ranks());
    }
    require(rank < layout.ranks(),
            "EmbeddingCollection: the layout is for {} ranks, this is rank {}; make it for "
            "communicator.size() ranks",
            layout.ranks(), rank);
    return layout;
  }

  template <Initializer F>
  void initialize(const Backend& backend, const ArenaPlan& plan, const Arena<T, Backend>& arena,
                  const F& initializer) {
    for (std::size_t i = 0; i < plan.segments.size(); ++i) {
      const op::ArenaSegment& segment = plan.segments[i];
      const std::int64_t table_rows = layout_.tables[layout_.shards[plan.shards[i]].table].rows;
      op::run<op::Initialize<T, F>>(
          backend, {arena.weights() + segment.row_offset * arena.width(),
                    segment.rows,
                    arena.width(),
                    {seed_, segment.table_key, table_rows, segment.row_begin, segment.column_begin},
                    initializer});
    }
  }

  /// Visits the parts of a whole table that this rank holds, a few megabytes at a time:
  /// visit(shard, part, first row of the shard).
  template <class U, class Visit>
  void for_each_piece(std::string_view name, int state, MatrixView<U> whole, Visit&& visit) const {
    const int index = table_index(name);
    const TableSpec& table = layout_.tables[index];
    const bool per_row = state >= 0 && states(index)[static_cast<std::size_t>(state)].per_row;
    require(whole.rows == table.rows && whole.columns == (per_row ? 1 : table.width),
            "table '{}' is [{}, {}], the matrix given [{}, {}]", name, table.rows,
            per_row ? 1 : table.width, whole.rows, whole.columns);
    detail::check_view("the matrix given for a table", whole);
    for (const LocalShard& shard : local_shards()) {
      if (shard.table != index) continue;
      const Rectangle& r = shard.rectangle;
      const MatrixView<U> columns = per_row ? whole : whole.column_range(r.column_begin, r.width());
      const std::int64_t rows_at_once =
          std::max<std::int64_t>(1, (std::int64_t{1} << 20) / columns.columns);
      for (std::int64_t first = 0; first < r.rows(); first += rows_at_once)
        visit(shard,
              columns.row_range(r.row_begin + first, std::min(rows_at_once, r.rows() - first)),
              first);
    }
  }

  /// Between a piece in host memory and rows of a shard in the backend's, converted on the way.
  template <class V>
  void write(MatrixView<V> shard, MatrixView<const float> piece, std::int64_t first) const {
    std::vector<V> values(static_cast<std::size_t>(piece.rows * piece.columns));
    for (std::int64_t i = 0; i < piece.rows; ++i)
      for (std::int64_t j = 0; j < piece.columns; ++j)
        values[i * piece.columns + j] = from_float<V>(piece(i, j));
    backend_.copy(shard.row(first), values.data(), values.size() * sizeof(V));
    backend_.synchronize();
  }
  template <class V>
  void read(MatrixView<V> shard, MatrixView<float> piece, std::int64_t first) const {
    std::vector<V> values(static_cast<std::size_t>(piece.rows * piece.columns));
    backend_.copy(values.data(), shard.row(first), values.size() * sizeof(V));
    backend_.synchronize();
    for (std::int64_t i = 0; i < piece.rows; ++i)
      for (std::int64_t j = 0; j < piece.columns; ++j)
        piece(i, j) = to_float(values[i * piece.columns + j]);
  }

  Backend backend_;
  Layout layout_;
  std::vector<TableTraining> training_;
  RankLayout routing_;
  std::uint64_t seed_;
  std::vector<Arena<T, Backend>> arenas_;
};

}  // namespace tessera::inline v0
