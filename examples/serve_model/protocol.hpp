// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera_serving/model_description.hpp>
#include <tessera_serving/model_inputs.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The KServe v2 inference protocol, with Triton's extension for binary tensors, as texts: nothing
/// here knows of connections.
namespace serve {

/// A request that is answered with a status of HTTP and this text.
struct Refusal : std::runtime_error {
  Refusal(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};

/// What a request may take.
struct RequestLimits {
  std::int64_t most_samples = std::int64_t{1} << 40;
  /// Called with bytes before they are taken. Throws if they are not to be had.
  std::function<void(std::uint64_t)> take = [](std::uint64_t) {};
};

/// One input of a request. Views of `texts` end with the request's body.
struct Tensor {
  std::string name, datatype;
  std::vector<std::int64_t> shape;
  std::vector<float> floats{};
  std::vector<double> doubles{};
  std::vector<std::int64_t> integers{};
  std::vector<std::string_view> texts{};
  std::vector<char> unescaped{};  ///< of JSON's texts with escapes
};

struct InferRequest {
  std::optional<std::string> id;
  std::vector<Tensor> inputs;
  bool binary_output = false;
};

/// Reads a request's body; `header`: the value of Inference-Header-Content-Length, the bytes of
/// JSON before binary tensors; none: all is JSON. Throws Refusal, of status 400, for everything
/// that a request must not be; what `limits.take` throws, too.
InferRequest parse_infer_request(std::string_view body, std::optional<std::string_view> header,
                                 const RequestLimits& limits = {});

/// The columns that the inputs name, in the model's order, as views of them. A list column L comes
/// as L__values and L__lengths. Throws Refusal for inputs that are missing, unknown, or of another
/// type or shape.
tessera::ModelColumns columns_of(const InferRequest& request,
                                 const tessera::ModelDescription& model, std::int64_t most_samples);

struct Reply {
  std::string body;
  std::size_t json_bytes = 0;  ///< 0: all of it
};
/// `step`: of the training whose model made the scores.
Reply infer_reply(std::string_view model, std::string_view version, std::int64_t step,
                  const InferRequest& request, std::span<const float> scores);

std::string server_metadata();
std::string model_metadata(std::string_view name, std::span<const std::string> versions,
                           std::int64_t step, const tessera::ModelDescription& model);
/// Triton's configuration of a model, of what clients and perf_analyzer read.
std::string model_config(std::string_view name, const tessera::ModelDescription& model,
                         std::int64_t most_samples);
struct VersionStatistics {
  std::string version;
  std::uint64_t samples = 0, requests = 0, nanoseconds = 0;
  std::int64_t last_ms = 0;  ///< when the last request was answered, since 1970; 0: none was
};
/// Triton's statistics; a request's whole time counts as computing.
std::string model_statistics(std::string_view name, std::span<const VersionStatistics> versions);
std::string error_body(std::string_view text);

}  // namespace serve
