# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""The standard headers that a header of the library needs, by the names that it uses. The compiler's check (headers.cmake) has the standard
library precompiled, so that it cannot tell.

A name may come through the library's own headers, not through one of another's. As a program it prints the standard's headers as a list
for CMake.
"""
import re

NAMES = {
    "algorithm": "adjacent_find all_of any_of binary_search clamp copy copy_n count count_if equal fill fill_n find find_if find_if_not "
                 "is_permutation is_sorted lower_bound max max_element min min_element minmax_element none_of nth_element partial_sort remove ranges::adjacent_find "
                 "ranges::any_of ranges::copy ranges::equal ranges::find ranges::lower_bound ranges::sort sort stable_sort transform unique upper_bound",
    "array": "array",
    "atomic": "atomic atomic_ref memory_order_acq_rel memory_order_acquire memory_order_relaxed memory_order_release",
    "bit": "bit_cast bit_ceil bit_floor bit_width countr_one countr_zero endian has_single_bit popcount",
    "charconv": "from_chars",
    "chrono": "chrono chrono_literals",
    "cmath": "abs ceil cos exp fabs floor fma isfinite isinf isnan ldexp llround log log1p log2 nan nanf nearbyint pow sqrt",
    "cctype": "isalnum",
    "concepts": "convertible_to copy_constructible default_initializable floating_point integral same_as unsigned_integral",
    "condition_variable": "condition_variable condition_variable_any",
    "cstddef": "byte max_align_t ptrdiff_t size_t to_integer",
    "cstdint": "int16_t int32_t int64_t int8_t intptr_t uint16_t uint32_t uint64_t uint8_t uintptr_t",
    "cstdio": "fflush fprintf",
    "cstdlib": "abort aligned_alloc free getenv",
    "cstring": "memchr memcmp memcpy memmove memset strerror",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr make_exception_ptr rethrow_exception uncaught_exceptions",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream",
    "functional": "equal_to function greater hash less not_equal_to",
    "future": "async future launch shared_future",
    "initializer_list": "initializer_list",
    "ios": "ios streamsize",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map",
    "memory": "make_shared make_unique shared_ptr unique_ptr",
    "mutex": "adopt_lock lock_guard mutex scoped_lock unique_lock",
    "new": "align_val_t bad_alloc",
    "numbers": "numbers",
    "numeric": "accumulate gcd iota",
    "optional": "nullopt optional",
    "queue": "priority_queue",
    "random": "minstd_rand mt19937 normal_distribution random_device",
    "set": "set",
    "span": "as_bytes as_writable_bytes span",
    "sstream": "istringstream ostringstream",
    "stdexcept": "runtime_error",
    "stop_token": "stop_token",
    "string": "getline string to_string",
    "string_view": "string_view",
    "system_error": "errc error_code system_error",
    "thread": "jthread this_thread thread",
    "tuple": "apply get tie tuple tuple_element_t",
    "type_traits": "bool_constant conditional_t integral_constant is_arithmetic_v is_const_v is_empty_v is_floating_point_v is_integral_v "
                   "is_constant_evaluated is_same_v is_signed_v is_trivially_copyable_v is_void_v make_unsigned_t remove_const_t remove_cvref_t decay_t "
                   "remove_pointer_t remove_reference_t type_identity type_identity_t",
    "unordered_map": "unordered_map",
    "utility": "as_const declval exchange forward index_sequence index_sequence_for integer_sequence make_index_sequence make_integer_sequence move pair swap",
    "variant": "variant visit",
    "vector": "vector",
}
# Headers that bring what another one declares, by the standard: containers bring their ranges' access, and so on.
ALSO = {
    "begin": "array deque iterator list map set span string string_view unordered_map vector",
    "end": "array deque iterator list map set span string string_view unordered_map vector",
    "size": "array deque iterator list map set span string string_view unordered_map vector",
    "ssize": "array deque iterator list map set span string string_view unordered_map vector",
    "next": "iterator",
    "prev": "iterator",
    "erase": "deque list map set string unordered_map vector",
    "erase_if": "deque list map set string unordered_map vector",
    "get": "array tuple utility variant",
    "size_t": "cstddef cstdio cstdlib cstring",
    "hash": "functional memory optional string string_view system_error thread variant",
    "ios": "fstream ios sstream",
    "streamsize": "fstream ios sstream",
    "stop_token": "stop_token thread",
    "swap": "utility vector",
    "pair": "map unordered_map utility",
    "initializer_list": "deque initializer_list list map set string unordered_map vector",
    "errc": "charconv system_error",
    "declval": "type_traits utility",
    "abs": "cmath cstdlib",
    "chrono": "condition_variable",  # whose waits take a clock's times; dates need <chrono>
}
HEADERS_OF = {}
for header, names in NAMES.items():
    for name in names.split():
        HEADERS_OF.setdefault(name, set()).add(header)
for name, headers in ALSO.items():
    HEADERS_OF.setdefault(name, set()).update(headers.split())

USE = re.compile(r"\bstd::((?:ranges::)?\w+)")
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")


def faults_of(headers):
    """headers: {path as it is included: text}. Yields (path, line, fault)."""
    direct = {name: INCLUDE.findall(text) for name, text in headers.items()}
    reached = {}

    def reach(name):
        if name not in reached:
            reached[name] = set(direct[name])
            for target in direct[name]:
                if target in direct:
                    reached[name] |= reach(target)
        return reached[name]

    for name, text in headers.items():
        told = set()
        for number, line in enumerate(COMMENT.sub("", text).splitlines(), 1):
            for used in USE.findall(line):
                if used in told:
                    continue
                needed = HEADERS_OF.get(used)
                if needed is None:
                    told.add(used)
                    yield name, number, f"std::{used} has no line in NAMES of tests/house/std_includes.py"
                elif not needed & reach(name):
                    told.add(used)
                    yield name, number, f"std::{used} needs " + " or ".join(f"<{h}>" for h in sorted(needed))


if __name__ == "__main__":
    print(";".join(f"<{header}>" for header in sorted(NAMES)), end="")
