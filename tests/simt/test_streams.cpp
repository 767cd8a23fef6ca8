// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

// Streams that do their work late: what is in order comes out right under every deferral, and a
// planted fault of each kind wrong under one of them at least. At once, none of these faults shows.
#include <simt/every_order.hpp>

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/inputs.cuh>
#include <tessera/ids/device_admission.hpp>

#include <doctest/doctest.h>
#include <gpu/device.hpp>
#include <gpu/graph.hpp>
#include <simt/run_again.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

enum class Fault {
  none,
  missing_wait,           // a stream reads what another writes
  early_reuse,            // a stream writes what another still reads
  freed_too_early,        // while another stream reads it
  freed_on_wrong_stream,  // which is not the one that reads it last
  pages_overwritten,      // before the copy has read them
  pages_freed,            // before the copy has read them
  host_reads_too_early    // what a copy will write
};

constexpr int count = 40, steps = 3;

template <int = 0>
__global__ void add_scaled(const int* in, int factor, int* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] += factor * in[i];
}
void add_scaled_on(const Cuda& backend, const int* in, int factor, int* out) {
  backend.launch("add_scaled", 2, 32, add_scaled<>, in, factor, out);
}

struct Pages {
  int* const data = static_cast<int*>(Cuda::allocate_host(count * sizeof(int)));
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { Cuda::deallocate_host(data, count * sizeof(int)); }
};

/// Two streams in turn: one brings numbers from the host, the other adds them up by way of a
/// temporary, the first takes its share of that.
std::vector<int> run_pipeline(Fault fault) {
  const gpu::Stream stream, other;
  const Cuda computing({.stream = stream.get()}), bringing({.stream = other.get()});
  const auto numbers = computing.buffer<int>(count), sums = computing.buffer<int>(count),
             shares = bringing.buffer<int>(count);
  computing.fill_zero(sums.data(), sums.bytes());
  bringing.fill_zero(shares.data(), shares.bytes());
  bringing.wait_for(computing);
  Pages pages, result;
  for (int step = 0; step < steps; ++step) {
    if (fault != Fault::pages_overwritten) bringing.synchronize();
    for (int i = 0; i < count; ++i) pages.data[i] = 100 * step + i;
    if (fault != Fault::early_reuse) bringing.wait_for(computing);
    if (fault == Fault::pages_freed) {
      const Pages brief;
      std::copy_n(pages.data, count, brief.data);
      bringing.copy(numbers.data(), brief.data, numbers.bytes());
    } else {
      bringing.copy(numbers.data(), pages.data, numbers.bytes());
    }
    if (fault != Fault::missing_wait) computing.wait_for(bringing);
    add_scaled_on(computing, numbers.data(), 1, sums.data());
    {
      const auto temporary = computing.buffer<int>(count), mine = bringing.buffer<int>(count);
      computing.wait_for(bringing);  // for the allocation
      for (const auto* to : {&temporary, &mine}) {
        computing.fill_zero(to->data(), to->bytes());
        add_scaled_on(computing, sums.data(), 2, to->data());
      }
      bringing.wait_for(computing);
      add_scaled_on(bringing, temporary.data(), 1, shares.data());
      if (fault != Fault::freed_too_early) computing.wait_for(bringing);
      add_scaled_on(computing, mine.data(), 1, sums.data());
      if (fault != Fault::freed_on_wrong_stream) bringing.wait_for(computing);
    }
    add_scaled_on(computing, numbers.data(), 1, sums.data());
    const auto next = computing.buffer<int>(count);
    computing.fill_zero(next.data(), next.bytes());
  }
  std::vector<int> found;
  for (const auto* from : {&sums, &shares}) {
    const Cuda& backend = from == &sums ? computing : bringing;
    std::fill_n(result.data, count, -5);
    backend.copy(result.data, from->data(), from->bytes());
    if (fault != Fault::host_reads_too_early) backend.synchronize();
    found.insert(found.end(), result.data, result.data + count);
    backend.synchronize();
  }
  return found;
}

/// What is wrong under some deferral; at once, all is right.
bool shows(Fault fault) {
  std::vector<std::vector<int>> found;
  simt::under_every_deferral([&] { found.push_back(run_pipeline(fault)); });
  bool differs = false;
  for (const auto& results : found) differs |= results != found.front();
  return differs;
}

}  // namespace

TEST_CASE("two streams that wait where they must: the same under every deferral") {
  const std::vector<int> at_once = run_pipeline(Fault::none);
  int sum = 0, share = 0;
  for (const int number : {1, 101, 201}) {
    sum += number;
    share += 2 * sum;
    sum += 2 * sum + number;
  }
  CHECK(at_once[1] == sum);
  CHECK(at_once[count + 1] == share);
  CHECK_FALSE(shows(Fault::none));
}

TEST_CASE("streams that do their work late show what is missing") {
  CHECK(shows(Fault::missing_wait));
  CHECK(shows(Fault::early_reuse));
  CHECK(shows(Fault::pages_overwritten));
  CHECK(shows(Fault::host_reads_too_early));
  if (simt::has_asan) return;  // which sees these itself
  CHECK(shows(Fault::freed_too_early));
  CHECK(shows(Fault::freed_on_wrong_stream));
  CHECK(shows(Fault::pages_freed));
}

TEST_CASE("planted: freed_too_early" * doctest::skip()) { shows(Fault::freed_too_early); }
TEST_CASE("planted: freed_on_wrong_stream" * doctest::skip()) {
  shows(Fault::freed_on_wrong_stream);
}
TEST_CASE("planted: pages_freed" * doctest::skip()) { shows(Fault::pages_freed); }

TEST_CASE("the address sanitizer sees memory that is used after its free, in the order of streams" *
          doctest::skip(!simt::has_asan)) {
  for (const char* name :
       {"planted: freed_too_early", "planted: freed_on_wrong_stream", "planted: pages_freed"}) {
    INFO(name);
    CHECK(output_of(name).find("AddressSanitizer: use-after-poison") != std::string::npos);
  }
}

TEST_CASE("a fault of ids that is known late names the feature of its own batch; wraps must fit") {
  const Layout layout =
      make_layout({1}, {{"t", 10, 4}, {"long", std::int64_t{3} << 30, 4}},
                  {{"a", "t"}, {"b", "t"}, {"c", "t"}, {"l", "long"}},
                  {{0, {0, 10, 0, 4}, 0}, {1, {0, std::int64_t{3} << 30, 0, 4}, 0}});
  REQUIRE(layout.fault.ok());
  const std::vector<std::int64_t> cuts{0, 1};
  for (const bool late : {false, true}) {
    const gpu::Stream stream;
    const Cuda backend({.stream = stream.get()});
    detail::IdReport<Cuda> report(backend, 2, 0);
    detail::DeviceAdmission<std::int32_t, Cuda> admission;
    backend.synchronize();
    const OnGpu<std::int32_t> ids(backend, {99, 1, 2}), good(backend, {4});
    detail::PodVector<detail::FeatureInput<std::int32_t>> inputs(4);
    std::vector<std::int64_t> ends;
    detail::IdChecks<Cuda> checks{.report = report, .sizes = detail::SizesNeeded::none};
    std::string text;
    {
      std::optional<simt::DeferredStreams> scope;
      if (late) scope.emplace(simt::Deferral{.first = simt::Deferral::First::awaited});
      try {
        admission.admit(backend, layout, std::vector<int>{0, 1, 2}, {3, 1, {ids.data(), 3}, {}, {}},
                        cuts, checks, inputs, ends);
        admission.admit(backend, layout, std::vector<int>{1}, {1, 1, {good.data(), 1}, {}, {}},
                        cuts, checks, inputs, ends);
        backend.synchronize();
        report.raise(backend, layout);
      } catch (const BadId& error) {
        text = error.what();
      }
    }
    CHECK_MESSAGE(text.find("'a'") != std::string::npos, text);
    checks.bad_ids = BadIds::wrap;
    CHECK_THROWS_WITH_AS(
        admission.admit(backend, layout, std::vector<int>{3}, {1, 1, {good.data(), 1}, {}, {}},
                        cuts, checks, inputs, ends),
        "BadIds::wrap: table 'long' has 3221225472 rows; give ids of 64 bits", InvalidArgument);
  }
}

TEST_CASE(
    "what is freed is given away again: to its own stream at once, to others when the free was "
    "done, or ahead if they wait") {
  const gpu::Stream stream, other;
  const Cuda first({.stream = stream.get()}), second({.stream = other.get()});
  const auto freed = [&] {
    const auto buffer = first.buffer<int>(count);
    first.fill_zero(buffer.data(), buffer.bytes());
    return buffer.data();
  };
  {
    const simt::DeferredStreams scope({});
    int* const p = freed();
    CHECK(second.buffer<int>(count).data() != p);
    CHECK(first.buffer<int>(count).data() == p);
    first.synchronize();
    CHECK(second.buffer<int>(count).data() == p);
  }
  {
    const simt::DeferredStreams scope({.reuse_ahead = true});
    int* const p = freed();
    const auto again = second.buffer<int>(count);
    CHECK(again.data() == p);
    std::vector<int> values(count);
    second.copy(values.data(), again.data(), again.bytes());
    // after the free, and after what was done before that
    CHECK(values == std::vector<int>(count, -1));
  }
  CHECK(simt::DeviceHeap::instance().count() == 0);
}

TEST_CASE(
    "a capture follows forks and joins; what is left out of a join is refused, and so is a wait "
    "for what was not captured") {
  simt::under_every_deferral([] {
    const gpu::Stream stream, other;
    const Cuda first({.stream = stream.get()}), second({.stream = other.get()});
    const auto numbers = first.buffer<int>(count), sums = first.buffer<int>(count),
               more = first.buffer<int>(count);
    for (const auto* to : {&numbers, &sums, &more}) first.fill_zero(to->data(), to->bytes());
    const std::vector<int> ones(count, 1);
    first.copy(numbers.data(), ones.data(), numbers.bytes());
    second.wait_for(first);
    const auto work = [&](bool joined) {
      add_scaled_on(first, numbers.data(), 1, sums.data());
      second.wait_for(first);
      add_scaled_on(second, sums.data(), 3, more.data());
      add_scaled_on(first, numbers.data(), 4, numbers.data());
      if (joined) first.wait_for(second);
      add_scaled_on(first, more.data(), 1, sums.data());
    };
    CHECK_THROWS_WITH_AS(Graph(stream, [&] { work(false); }),
                         doctest::Contains("cudaErrorStreamCaptureUnjoined"), CudaError);
    CHECK_THROWS_WITH_AS(Graph(stream, [&] { second.wait_for(first); }),
                         doctest::Contains("cudaErrorStreamCaptureUnjoined"), CudaError);
    CHECK_THROWS_WITH_AS(Graph(stream, [&] { first.wait_for(second); }),
                         doctest::Contains("cudaErrorStreamCaptureIsolation"), CudaError);
    const Graph graph(stream, [&] { work(true); });
    int sum = 0, added = 0, number = 1;
    for (int launch = 0; launch < 3; ++launch) {
      graph.launch();
      sum += number;
      added += 3 * sum;
      number *= 5;
      sum += added;
    }
    std::vector<int> found(count);
    first.copy(found.data(), sums.data(), sums.bytes());
    CHECK(found == std::vector<int>(count, sum));
  });
}

TEST_CASE(
    "branches of a graph are done in different orders: one that lacks a join between them shows "
    "it") {
  std::vector<std::vector<int>> found;
  simt::under_every_deferral([&] {
    const gpu::Stream stream, other;
    const Cuda first({.stream = stream.get()}), second({.stream = other.get()});
    const auto numbers = first.buffer<int>(count), sums = first.buffer<int>(count);
    first.fill_zero(sums.data(), sums.bytes());
    const std::vector<int> ones(count, 1);
    first.copy(numbers.data(), ones.data(), numbers.bytes());
    const Graph graph(stream, [&] {
      second.wait_for(first);
      add_scaled_on(second, numbers.data(), 1, sums.data());
      add_scaled_on(first, sums.data(), 1, numbers.data());  // reads what the other branch writes
      first.wait_for(second);
    });
    graph.launch();
    found.emplace_back(count);
    first.copy(found.back().data(), numbers.data(), numbers.bytes());
  });
  CHECK(found[0] == std::vector<int>(count, 2));
  CHECK(std::find(found.begin(), found.end(), std::vector<int>(count, 1)) != found.end());
}

TEST_CASE(
    "a stream may be destroyed before its work is done; an event is the point where it was "
    "recorded last") {
  simt::under_every_deferral([] {
    const Cuda backend;
    const auto sums = backend.buffer<int>(count), numbers = backend.buffer<int>(count);
    for (const auto* to : {&numbers, &sums}) backend.fill_zero(to->data(), to->bytes());
    const std::vector<int> ones(count, 1);
    backend.copy(numbers.data(), ones.data(), numbers.bytes());
    gpu::Event event;
    event.synchronize();  // nothing was recorded
    {
      const gpu::Stream stream;
      const Cuda other({.stream = stream.get()});
      other.wait_for(backend);
      event.record(stream.get());
      add_scaled_on(other, numbers.data(), 1, sums.data());
      event.record(stream.get());
    }
    event.block(nullptr);
    std::vector<int> found(count);
    backend.copy(found.data(), sums.data(), sums.bytes());
    CHECK(found == ones);
    event.synchronize();
  });
}

TEST_CASE("host threads wait for what others give") {
  simt::under_every_deferral([] {
    const gpu::Stream stream;
    const Cuda backend({.stream = stream.get()});
    const auto sums = backend.buffer<int>(count);
    backend.fill_zero(sums.data(), sums.bytes());
    std::thread([&] {
      const gpu::Stream own;
      const Cuda other({.stream = own.get()});
      other.wait_for(backend);
      add_scaled_on(other, sums.data(), 1, sums.data());
      backend.wait_for(other);
    }).join();
    std::vector<int> found(count, -1);
    backend.copy(found.data(), sums.data(), sums.bytes());
    CHECK(found == std::vector<int>(count));
  });
}
