// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/temporary_file.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/compressed_file.hpp>
#include <tessera_data/csv_reader.hpp>
#include <tessera_data/external_sort.hpp>
#include <tessera_data/histories.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The columns of a file of events, and how much memory sorting takes.
struct HistoryReaderOptions {
  /// names of columns; `label` may be empty: then all labels are 1
  std::string user = "user", item = "item", time = "timestamp", label = {};
  std::string separator = {};  ///< empty: a tab if the first line holds one, else a comma
  char quote = '"';            ///< see CsvReaderOptions
  std::vector<std::string> columns = {}, empty_words = {};
  /// what is before and after the names of the four columns' options in messages
  std::string before_option = "HistoryReaderOptions::", after_option = {};
  BadLines bad_lines = BadLines::fatal;
  std::size_t memory_bytes = std::size_t{256} << 20;  ///< for events; more of them go to a file
  std::filesystem::path temporary_folder = {};        ///< of that file; empty: the system's
  OpenRecords open = {};                              ///< what opens files that are no text
};

/// The histories of all users in a CSV or TSV file of events, which may be compressed, in any
/// order, and larger than memory: events are sorted by user and time in a temporary file and then
/// mapped. Events of one time stay in the file's order. In memory are the distinct keys of users
/// and items, 8 bytes per user, and `memory_bytes`. Users are numbered as they first appear; items
/// in the order of a hash of their keys, so that popular ones spread over a table that is cut by
/// rows. Throws DataError, with file, line and column, for records that are none.
class HistoryReader {
 public:
  explicit HistoryReader(const std::filesystem::path& path,
                         const HistoryReaderOptions& options = {})
      : HistoryReader(records_of(path, options), path, options) {}

  /// Reads from any source of bytes; `name` is the file's in messages.
  HistoryReader(ByteSource source, std::string name, HistoryReaderOptions options = {})
      : name_(std::move(name)), options_(std::move(options)) {
    fill([&] { return text_of(std::move(source)); });
  }

  HistoryReader(HistoryReader&&) = default;
  HistoryReader& operator=(HistoryReader&&) = default;

  /// Returns the histories, valid as long as the reader lives, also where that moves to.
  Histories histories() const {
    return {sorted_ ? mapped_ : std::span<const HistoryEvent>(events_), offsets_, items()};
  }
  std::int64_t users() const { return static_cast<std::int64_t>(user_keys_.size()); }
  std::int64_t items() const { return static_cast<std::int64_t>(item_keys_.size()); }
  const std::string& user_key(std::int64_t user) const {
    return user_keys_.at(static_cast<std::size_t>(user));
  }
  const std::string& item_key(std::int64_t item) const {
    return item_keys_.at(static_cast<std::size_t>(item));
  }
  /// Tells data apart: of all events in their order.
  std::uint64_t checksum() const { return checksum_; }
  /// Returns whether events did not fit `memory_bytes`.
  bool on_disk() const { return sorted_.has_value(); }
  /// Return the bad lines that were skipped, and what was wrong with the first.
  std::int64_t bad_lines() const { return bad_lines_; }
  const std::string& first_bad_line() const { return first_bad_line_; }

 private:
  struct Record {
    std::int64_t time;
    std::uint32_t user;
    std::int32_t item;
    float label;
    std::uint32_t unused = 0;
  };
  struct ByUserAndTime {
    bool operator()(const Record& a, const Record& b) const {
      return std::tie(a.user, a.time) < std::tie(b.user, b.time);
    }
  };
  using Sort = detail::ExternalSort<Record, ByUserAndTime>;

  /// Numbers for keys, as they first appear.
  class Keys {
   public:
    std::uint32_t number(std::string_view key) {
      const auto found = numbers_.find(key);
      if (found != numbers_.end()) return found->second;
      return numbers_.emplace(key, static_cast<std::uint32_t>(numbers_.size())).first->second;
    }
    std::size_t size() const { return numbers_.size(); }
    /// Returns the keys by their numbers; none are left here.
    std::vector<std::string> take() {
      std::vector<std::string> keys(numbers_.size());
      while (!numbers_.empty()) {
        auto node = numbers_.extract(numbers_.begin());
        keys[node.mapped()] = std::move(node.key());
      }
      return keys;
    }

   private:
    struct Hash {
      using is_transparent = void;
      std::size_t operator()(std::string_view key) const {
        return std::hash<std::string_view>()(key);
      }
    };
    std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> numbers_;
  };

  struct Columns {
    std::size_t fields, user, item, time, label;
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  };

  static RecordSource records_of(const std::filesystem::path& path,
                                 const HistoryReaderOptions& options) {
    if (!options.open) return {};
    std::vector<WantedColumn> wanted{{options.user}, {options.item}, {options.time}};
    if (!options.label.empty()) wanted.push_back({options.label});
    return options.open(path, wanted, 0);
  }
  /// Reads rows, or text if there are none.
  HistoryReader(RecordSource rows, const std::filesystem::path& path,
                const HistoryReaderOptions& options)
      : name_(path.string()), options_(options) {
    fill([&] {
      return rows.next ? CsvReader(std::move(rows), name_,
                                   {.empty_words = options_.empty_words, .first_line = 1})
                       : text_of(open_bytes(path));
    });
  }

  CsvReader text_of(ByteSource source) const {
    auto [separator, whole] = look_at_first_line(std::move(source));
    if (!options_.separator.empty()) separator = options_.separator;
    return {std::move(whole),
            name_,
            {.separator = separator,
             .quote = options_.quote,
             .columns = options_.columns,
             .empty_words = options_.empty_words}};
  }

  /// Reads, sorts and keeps the events of the reader that `open()` returns.
  template <class Open>
  void fill(const Open& open) {
    require(options_.memory_bytes > 0, "HistoryReader: memory_bytes must be positive");
    if (options_.temporary_folder.empty())
      options_.temporary_folder = std::filesystem::temp_directory_path();
    Sort sort(options_.temporary_folder, options_.memory_bytes);
    read(open(), sort);
    number_items();
    collect(sort);
  }

  /// Returns the separator, and a source that begins anew.
  static std::pair<std::string, ByteSource> look_at_first_line(ByteSource source) {
    std::string begin(std::size_t{1} << 16, '\0');
    std::size_t bytes = 0;
    const auto line_of = [&] {  // the first that is not empty, and its end
      const std::string_view text = std::string_view(begin).substr(0, bytes);
      const std::size_t at = std::min(text.find_first_not_of("\r\n"), text.size());
      return text.substr(at, text.find('\n', at) - at);
    };
    const auto goes_on = [&] {
      const std::string_view line = line_of();
      return line.data() + line.size() == begin.data() + bytes;
    };
    while (bytes < begin.size() && goes_on()) {
      const std::size_t more = source(std::span(begin).subspan(bytes));
      if (more == 0) break;
      bytes += more;
    }
    const std::string separator = line_of().find('\t') == std::string_view::npos ? "," : "\t";
    begin.resize(bytes);
    return {separator, [source = std::move(source), begin = std::move(begin),
                        at = std::size_t{0}](std::span<char> chunk) mutable {
              if (at == begin.size()) return source(chunk);
              const std::size_t count = begin.copy(chunk.data(), chunk.size(), at);
              at += count;
              return count;
            }};
  }

  void read(CsvReader csv, Sort& sort) {
    const std::span<const std::string_view> header = csv.header();
    const std::string where = csv.rows() ? detail::formatted("file '{}'", name_)
                              : options_.columns.empty()
                                  ? csv.where()
                                  : detail::formatted("file '{}', the columns given for it", name_);
    const auto place = [&](const std::string& column, std::string_view option) {
      return column_place(
          header, column, where,
          detail::formatted("{}{}{}", options_.before_option, option, options_.after_option));
    };
    const Columns columns{header.size(), place(options_.user, "user"), place(options_.item, "item"),
                          place(options_.time, "time"),
                          options_.label.empty() ? Columns::none : place(options_.label, "label")};
    Keys users, items;
    for (auto fields = csv.next(); !fields.empty(); fields = csv.next()) {
      Record record{};
      const std::string fault = parse(csv, fields, columns, users, items, record);
      if (fault.empty()) {
        sort.add(record);
        continue;
      }
      const std::string text = csv.where() + fault;
      if (options_.bad_lines == BadLines::fatal) throw DataError(text);
      if (bad_lines_++ == 0) first_bad_line_ = text;
    }
    require<DataError>(users.size() > 0, "file '{}' holds no events{}", name_,
                       bad_lines_ > 0 ? "; the first bad line: " + first_bad_line_ : "");
    require<DataError>(users.size() <= std::numeric_limits<std::int32_t>::max() &&
                           items.size() <= std::numeric_limits<std::int32_t>::max(),
                       "file '{}' holds {} users and {} items; at most 2^31 - 1 of each are read",
                       name_, users.size(), items.size());
    user_keys_ = users.take();
    item_keys_ = items.take();
  }

  /// Fills the record; returns what is wrong, or "".
  std::string parse(const CsvReader& csv, std::span<const std::string_view> fields,
                    const Columns& columns, Keys& users, Keys& items, Record& record) const {
    if (fields.size() != columns.fields) return ": " + csv.wrong_field_count();
    const std::string_view user = fields[columns.user], item = fields[columns.item],
                           time = fields[columns.time];
    const auto bad = [](const std::string& column, std::string_view field, const char* what) {
      return detail::formatted(", column {}: {} {}", detail::quoted(column), detail::quoted(field),
                               what);
    };
    if (user.empty()) return bad(options_.user, user, "is empty; every event has a user");
    if (item.empty()) return bad(options_.item, item, "is empty; every event has an item");
    if (!parse_time(time, record.time))
      return bad(options_.time, time,
                 "is no whole number of 64 bits, as of seconds since a fixed time");
    record.label = 1;
    if (double label = 1; columns.label != Columns::none) {
      if (fields[columns.label].empty())
        return bad(options_.label, fields[columns.label], "is empty; every event has a label");
      if (const char* const fault = detail::parse_float_range(fields[columns.label], label))
        return bad(options_.label, fields[columns.label], fault);
      record.label = static_cast<float>(label);
    }
    record.user = users.number(user);
    record.item = static_cast<std::int32_t>(items.number(item));
    return {};
  }

  /// Parses whole numbers, also as 978300760.0, which tables of floats write.
  static bool parse_time(std::string_view field, std::int64_t& time) {
    const std::size_t point = field.find('.');
    if (point != std::string_view::npos && point > 0 && point + 1 < field.size() &&
        field.find_first_not_of('0', point + 1) == std::string_view::npos)
      field = field.substr(0, point);
    return parse_number(field, time) == NumberText::number;
  }

  /// Sorts the keys of items and keeps, for collect, the new number of each old one.
  void number_items() {
    std::vector<std::uint64_t> hashes;
    for (const std::string& key : item_keys_) hashes.push_back(detail::name_key(key));
    std::vector<std::uint32_t> order(item_keys_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::tie(hashes[a], item_keys_[a]) < std::tie(hashes[b], item_keys_[b]);
    });
    std::vector<std::string> keys;
    item_of_.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      keys.push_back(std::move(item_keys_[order[i]]));
      item_of_[order[i]] = static_cast<std::int32_t>(i);
    }
    item_keys_ = std::move(keys);
  }

  void collect(Sort& sort) {
    const bool on_disk = sort.on_disk();
    const std::size_t block =
        std::max<std::size_t>(1, options_.memory_bytes / 16 / sizeof(HistoryEvent));
    if (on_disk) sorted_.emplace(options_.temporary_folder);
    const auto flush = [&] {
      sorted_->append(std::as_bytes(std::span(events_)));
      events_.clear();
    };
    std::int64_t count = 0;
    sort.finish([&](const Record& record) {
      while (offsets_.size() <= record.user) offsets_.push_back(count);
      events_.push_back(
          {record.time, item_of_[static_cast<std::size_t>(record.item)], record.label});
      const HistoryEvent& event = events_.back();
      checksum_ = mix64(checksum_ ^ static_cast<std::uint64_t>(event.time)) + record.user;
      checksum_ = mix64(checksum_ ^ static_cast<std::uint64_t>(event.item)) +
                  std::bit_cast<std::uint32_t>(event.label);
      ++count;
      if (on_disk && events_.size() == block) flush();
    });
    offsets_.push_back(count);
    item_of_ = {};
    if (!on_disk) return;
    flush();
    events_ = {};
    const std::span<const std::byte> bytes = sorted_->map();
    mapped_ = {reinterpret_cast<const HistoryEvent*>(bytes.data()),
               bytes.size() / sizeof(HistoryEvent)};
  }

  std::string name_;
  HistoryReaderOptions options_;
  std::vector<std::string> user_keys_, item_keys_;
  std::vector<std::int32_t> item_of_;  ///< the number of an item, of that as it first appeared
  std::vector<HistoryEvent> events_;   ///< if they fit
  std::optional<detail::TemporaryFile> sorted_;
  std::span<const HistoryEvent> mapped_;  ///< of sorted_
  std::vector<std::int64_t> offsets_;
  std::uint64_t checksum_ = 0;
  std::int64_t bad_lines_ = 0;
  std::string first_bad_line_;
};

}}  // namespace tessera::v0
