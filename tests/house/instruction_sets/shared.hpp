// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What both sources of the program define: were it shared between levels, they would disturb each
// other.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>

/// Names in the order in which initializers ran.
inline char events[16];

struct Event {
  explicit Event(const char* name) { std::strcat(events, name); }
  ~Event() { std::puts("destroyed"); }
};

/// A unique symbol of g++, with a guard.
template <class T>
int& count() {
  static int value = static_cast<int>(std::strlen(events));
  return value;
}

inline thread_local std::string of_thread = "thread";

struct Refused {
  int lanes;
};

/// Vectors that the compiler makes: inline, in both sources, with other instructions in every
/// level.
inline float product(const float* a, const float* b, int n) {
  float sums[16] = {};
  for (int i = 0; i < n; i += 16)
    for (int k = 0; k < 16; ++k) sums[k] += a[i + k] * b[i + k];
  float sum = 0;
  for (float s : sums) sum += s;
  return sum;
}

/// Table rows looked up and updated; the greatest difference from the same in double, and the sum
/// of all results.
struct Outcome {
  double error, checksum;
};
Outcome train();

/// Throws Refused with this level's vector length; calls `product` and `count` of the other source.
void refuse();
