// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// StepReport: what the stages of a step took, and that nobody pays for it who does not ask.
#include <collection/step_report_bodies.hpp>

#include <doctest/doctest.h>

#include <array>
#include <type_traits>

using namespace tessera;

TEST_CASE("reports: bytes, rows and stages are those of the step; the model is the same") {
  step_reports::reports_are_what_happened<Host>();
}
TEST_CASE("reports: accumulated batches are one step; the share that was clipped") {
  step_reports::reports_of_accumulated_steps<Host>();
}

TEST_CASE("reports: how evenly ranks share a stage") {
  std::array<StepReport, 3> reports;
  for (const int r : {0, 1, 2}) reports[r][ReportedStage::lookup].seconds = r == 1 ? 4 : 1;
  const detail::StageBalance found = balance(reports, ReportedStage::lookup);
  CHECK(found.mean == doctest::Approx(2));
  CHECK(found.most == 4);
  CHECK(found.slowest == 1);
  CHECK(found.imbalance() == doctest::Approx(2));
  CHECK(balance(reports, ReportedStage::update).imbalance() == 1);
}

namespace {
template <class E>
concept Reports = requires(E& e) { e.step_report(); };
}  // namespace

TEST_CASE("reports: a collection without the policy has none, and its stages none of the code") {
  using Silent = small_model::Embeddings<ThreadCommunicator>;
  static_assert(!Reports<Silent> &&
                Reports<small_model::Embeddings<ThreadCommunicator, ReportSteps>>);
  static_assert(std::is_empty_v<detail::StepReporter<false, ThreadCommunicator, Host>> &&
                std::is_same_v<detail::StepReporter<false, ThreadCommunicator, Host>::Ranks,
                               ThreadCommunicator>);
}
