// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The first line of the input is the header Inference-Header-Content-Length, or empty; the rest is
// a request's body. No request may do more harm than a refusal of status 400; what is accepted has
// as many elements as its shapes tell of.
#include "../../examples/serve_model/protocol.cpp"

#include <cstdint>
#include <cstdlib>

using namespace tessera;

namespace {

const ModelDescription& model() {
  static const ModelDescription made{
      .vector_width = 4,
      .bottom_mlp = {1, 4},
      .top_mlp = {16, 1},
      .numeric = {{"I1"}},
      .tables = {{"t", 9, 4, CategoryKey::text, KeyRows::hash, 7, {}, 0, {}}},
      .features = {{"C1", "t"}, {"L", "t", Pooling::mean, true}}};
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  std::optional<std::string_view> header;
  if (line > 0) header = text.substr(0, line);
  text.remove_prefix(std::min(line + 1, text.size()));
  try {
    const serve::InferRequest request = serve::parse_infer_request(text, header);
    const ModelColumns columns = serve::columns_of(request, model(), 1000);
    if (columns.samples > 1000 || std::ssize(columns.numbers.at(0)) != columns.samples)
      std::abort();
    std::int64_t entries = 0;
    for (const std::int64_t length : columns.categories.at(1).lengths)
      entries = static_cast<std::int64_t>(static_cast<std::uint64_t>(entries) +
                                          static_cast<std::uint64_t>(length));
    const std::vector<float> scores(static_cast<std::size_t>(columns.samples), 0.5f);
    if (serve::infer_reply("m", "1", 7, request, scores).body.empty()) std::abort();
  } catch (const serve::Refusal& refusal) {
    if (refusal.status != 400 || serve::error_body(refusal.what()).size() < 12) std::abort();
  }
  return 0;
}
