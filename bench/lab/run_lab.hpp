// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The sharding laboratory as a function: plans of the user's own model in a race, with the user's
// own policies among them. docs/laboratory.md.
#pragma once

#include <tessera/planner/planned_policy.hpp>

#include <string>
#include <vector>

namespace lab {

/// A policy that --plans may name.
struct NamedPolicy {
  std::string name;
  tessera::detail::PlannedPolicy policy{};
};

/// Returns P::name, or "policy 2" of the second that has none.
template <class P>
NamedPolicy named_policy(std::size_t number) {
  NamedPolicy named{"policy " + std::to_string(number)};
  if constexpr (requires { std::string(P::name); }) named.name = std::string(P::name);
  named.policy = tessera::planned_policy<P>("own policy");
  return named;
}

/// Runs the command line and returns the program's exit code. `program`: its name in messages.
int run_lab(int argc, const char* const* argv, const std::vector<NamedPolicy>& policies,
            const std::string& program);

/// Does the same with these policies in the race; --plans names each by its `name`.
///
///     int main(int argc, char** argv) { return lab::run_lab<MyPolicy>(argc, argv); }
template <class... Policies>
int run_lab(int argc, const char* const* argv, const std::string& program = "run_lab") {
  std::vector<NamedPolicy> policies;
  (policies.push_back(named_policy<Policies>(policies.size() + 1)), ...);
  return run_lab(argc, argv, policies, program);
}

/// What --help of the laboratory prints.
std::string lab_help(const std::string& program);

}  // namespace lab
