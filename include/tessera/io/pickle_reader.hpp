// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A value of a pickle. Others are named by their places in Pickle::values.
struct PickleValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    text,
    tuple,
    list,
    dict,    ///< items: key, value, key, ...
    name,    ///< of a class or function: its module, a dot, its own
    object,  ///< of the class or function `text`, made from the tuple items[0]
    outside  ///< kept outside of the pickle; items[0] says what it is
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;
  std::string text{};
  std::vector<std::size_t> items{};
  std::size_t state = 0;  ///< of an object: what was set after it was made; 0: nothing
};

/// Reads the values that a pickle of Python (protocols 2 to 5) describes. Makes no objects and
/// calls nothing: a class is a name. Knows what PyTorch writes about tensors: numbers, texts,
/// tuples, lists, dicts and objects; everything else is an error, as is a class that `known`
/// refuses.
class Pickle {
 public:
  using Kind = PickleValue::Kind;
  using Known = bool (*)(std::string_view module, std::string_view name);

  /// Reads `bytes`; `file` is what messages name.
  Pickle(std::string_view bytes, std::string file, Known known)
      : values_(1), bytes_(bytes), file_(std::move(file)), known_(known) {
    while (step()) continue;
    check(stack_.size() == 1 && marks_.empty(), "the pickle ends inside a value");
    check(at_ == bytes_.size(), "bytes follow the pickle");
    root_ = stack_[0];
  }

  std::size_t root() const { return root_; }
  const PickleValue& operator[](std::size_t value) const { return values_[value]; }

  /// Returns a value of this kind. Throws DataError, with `what` it is, for another one.
  const PickleValue& get(std::size_t value, Kind kind, std::string_view what) const {
    require<DataError>(values_[value].kind == kind,
                       "file '{}': {} is of another kind than PyTorch writes", file_, what);
    return values_[value];
  }

  /// Returns the place of what a dict has under a key; 0: it has none.
  std::size_t find(const PickleValue& dict, std::string_view key) const {
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2)
      if (const PickleValue& own = values_[dict.items[i]];
          own.kind == Kind::text && own.text == key)
        return dict.items[i + 1];
    return 0;
  }

  /// Returns an attribute of an object whose state is a dict; 0: it has none.
  std::size_t attribute(const PickleValue& object, std::string_view name) const {
    const PickleValue& state = values_[object.state];
    return object.kind == Kind::object && state.kind == Kind::dict ? find(state, name) : 0;
  }

  const std::string& file() const { return file_; }

 private:
  void check(bool good, std::string_view fault) const {
    require<DataError>(good, "file '{}', offset {}: {}", file_, begin_, fault);
  }

  std::string_view take(std::uint64_t count) {
    check(count <= bytes_.size() - at_, "the pickle ends too early");
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return taken;
  }
  std::uint64_t number(std::size_t count) {
    std::uint64_t value = 0;
    const std::string_view taken = take(count);
    for (std::size_t i = 0; i < count; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    return value;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    check(end != std::string_view::npos, "the pickle ends too early");
    const std::string_view taken = take(end - at_);
    ++at_;
    return taken;
  }

  std::size_t pop() {
    check(stack_.size() > (marks_.empty() ? 0 : marks_.back()),
          "the pickle takes a value too many");
    const std::size_t value = stack_.back();
    stack_.pop_back();
    return value;
  }
  /// Returns the value on top, which stays there.
  PickleValue& top(Kind kind) {
    check(
        stack_.size() > (marks_.empty() ? 0 : marks_.back()) && values_[stack_.back()].kind == kind,
        "the pickle adds to a value of another kind");
    return values_[stack_.back()];
  }
  /// Takes the last `count` values.
  std::vector<std::size_t> last(std::size_t count) {
    std::vector<std::size_t> taken(count);
    while (count > 0) taken[--count] = pop();
    return taken;
  }
  std::vector<std::size_t> since_mark() {
    check(!marks_.empty(), "the pickle has no mark here");
    std::vector<std::size_t> taken(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                   stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return taken;
  }
  void push(PickleValue value) {
    values_.push_back(std::move(value));
    stack_.push_back(values_.size() - 1);
  }
  void push_name(std::string_view module, std::string_view name) {
    if (!known_(module, name))
      check(false, formatted("'{}.{}' is not read: PyTorch writes none such about tensors",
                             printable(module, 80), printable(name, 80)));
    // each use copies it: a long one would take memory by the square of the file's size
    check(module.size() + name.size() <= 256, "the name of a class has more than 256 characters");
    push({Kind::name, 0, formatted("{}.{}", module, name)});
  }
  void remember(std::uint64_t number) {
    check(!stack_.empty(), "the pickle has no value here");
    memory_[number] = stack_.back();
  }
  void recall(std::uint64_t number) {
    const auto found = memory_.find(number);
    check(found != memory_.end(), "the pickle names a value that it does not have");
    stack_.push_back(found->second);
  }
  void append(Kind kind, const std::vector<std::size_t>& values) {
    std::vector<std::size_t>& items = top(kind).items;
    items.insert(items.end(), values.begin(), values.end());
    check(kind == Kind::list || values.size() % 2 == 0, "a key has no value");
  }

  /// Reads one instruction; returns false behind the last.
  bool step() {
    begin_ = at_;
    const auto code = static_cast<unsigned char>(take(1)[0]);
    switch (code) {
      case 0x80:  // PROTO
        check(number(1) <= 5, "the pickle's protocol is later than 5");
        break;
      case 0x95:  // FRAME
        number(8);
        break;
      case '.':
        return false;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case 'N':
        push({});
        break;
      case 0x88:
      case 0x89:
        push({Kind::boolean, code == 0x88});
        break;
      case 'K':
        push({Kind::integer, static_cast<std::int64_t>(number(1))});
        break;
      case 'M':
        push({Kind::integer, static_cast<std::int64_t>(number(2))});
        break;
      case 'J':
        push({Kind::integer, static_cast<std::int32_t>(number(4))});
        break;
      case 0x8a: {  // LONG1: two's complement of so many bytes
        const std::size_t count = static_cast<std::size_t>(number(1));
        check(count <= 8, "a number has more than 64 bits");
        std::uint64_t value = number(count);
        if (count > 0 && count < 8 && (value >> (8 * count - 1)) != 0)
          value |= ~0ull << (8 * count);
        push({Kind::integer, static_cast<std::int64_t>(value)});
        break;
      }
      case 0x8c:
        push({Kind::text, 0, std::string(take(number(1)))});
        break;
      case 'X':
        push({Kind::text, 0, std::string(take(number(4)))});
        break;
      case ')':
        push({Kind::tuple});
        break;
      case 0x85:
      case 0x86:
      case 0x87:
        push({Kind::tuple, 0, "", last(code - 0x84u)});
        break;
      case 't':
        push({Kind::tuple, 0, "", since_mark()});
        break;
      case ']':
        push({Kind::list});
        break;
      case 'a':
        append(Kind::list, last(1));
        break;
      case 'e':
        append(Kind::list, since_mark());
        break;
      case '}':
        push({Kind::dict});
        break;
      case 's':
        append(Kind::dict, last(2));
        break;
      case 'u':
        append(Kind::dict, since_mark());
        break;
      case 'q':
        remember(number(1));
        break;
      case 'r':
        remember(number(4));
        break;
      case 0x94:
        remember(memory_.size());
        break;
      case 'h':
        recall(number(1));
        break;
      case 'j':
        recall(number(4));
        break;
      case 'c': {
        const std::string_view module = line();
        push_name(module, line());
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::vector<std::size_t> names = last(2);
        check(values_[names[0]].kind == Kind::text && values_[names[1]].kind == Kind::text,
              "a class has no name");
        const std::string module = values_[names[0]].text, name = values_[names[1]].text;
        push_name(module, name);
        break;
      }
      case 'R':
      case 0x81: {  // REDUCE, NEWOBJ
        const std::vector<std::size_t> parts = last(2);
        check(values_[parts[0]].kind == Kind::name && values_[parts[1]].kind == Kind::tuple,
              "the pickle makes an object of no class");
        push({Kind::object, 0, std::string(values_[parts[0]].text), {parts[1]}});
        break;
      }
      case 'b': {
        const std::size_t state = pop();
        top(Kind::object).state = state;
        break;
      }
      case 'Q':
        push({Kind::outside, 0, "", last(1)});
        break;
      default:
        check(false, formatted("the instruction 0x{:02x} is not read: PyTorch writes none such "
                               "about tensors",
                               static_cast<unsigned>(code)));
    }
    return true;
  }

  std::vector<PickleValue> values_;  ///< the first is none of the pickle's
  std::vector<std::size_t> stack_, marks_;
  std::map<std::uint64_t, std::size_t> memory_;
  std::string_view bytes_;
  std::string file_;
  Known known_;
  std::size_t at_ = 0, begin_ = 0, root_ = 0;
};

}}}  // namespace tessera::v0::detail
