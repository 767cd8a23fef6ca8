// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

int main() { std::puts("one of several levels"); }
