// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <gpu/graph_cases.hpp>
#include <gpu/rank_ahead_cases.hpp>
#include <gpu/rank_graph_cases.hpp>
#include <simt/stream_communicator.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/hierarchical_communicator.hpp>

#include <algorithm>
#include <string>

TEST_CASE("the emulator captures nothing that a replay would not repeat") {
  const gpu::Stream stream, other;
  const Cuda backend({.stream = stream.get()}), second({.stream = other.get()});
  const Array<float, Cuda> device(backend, std::vector<float>{1, 2});
  std::vector<float> pageable{3, 4};
  auto* pages = static_cast<float*>(Cuda::allocate_host(2 * sizeof(float)));
  CHECK_THROWS_AS(Graph(stream, [&] { backend.allocate(8); }), CudaError);
  CHECK_THROWS_AS(Graph(stream, [&] { backend.copy(device.data(), pageable.data(), 8); }),
                  CudaError);
  CHECK_THROWS_AS(Graph(stream, [&] { backend.synchronize(); }), CudaError);
  CHECK_THROWS_AS(Graph(stream, [&] { second.wait_for(backend); }), CudaError);

  pages[0] = 5, pages[1] = 6;
  const Graph graph(stream, [&] { backend.copy(device.data(), pages, 8); });
  CHECK((device.read() == std::vector<float>{1, 2}));  // captured, not done
  graph.launch();
  CHECK((device.read() == std::vector<float>{5, 6}));
  pages[1] = 7;
  graph.launch();
  CHECK((device.read() == std::vector<float>{5, 7}));
  Cuda::deallocate_host(pages, 8);
}

TEST_CASE(
    "steps of several ranks as graphs: with equal batches the host waits for nothing, whatever the "
    "policies") {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [ranks](ThreadCommunicator& threads) {
      const gpu::Stream stream;
      simt::StreamCommunicator communicator(threads, stream.get());
      CHECK(graphs_train_like_calls(communicator, stream, ranks == 3));
    });
}

TEST_CASE("steps with sequences and max pooling as graphs: the bits of called steps") {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [](ThreadCommunicator& threads) {
      const gpu::Stream stream;
      simt::StreamCommunicator communicator(threads, stream.get());
      const bool bags = threads.size() != 2;
      CHECK((train_rank<RowWiseAdagrad>(communicator, stream, true, bags, bags, true) ==
             train_rank<RowWiseAdagrad>(communicator, stream, false, bags, bags, true)));
      if (threads.size() != 1) return;
      // without the option the host asks how many rows there are
      for (const bool with_offsets : {false, true})
        CHECK_THROWS_WITH_AS(train_rank<RowWiseAdagrad>(communicator, stream, true, with_offsets,
                                                        false, true, false),
                             doctest::Contains("set Options::equal_batches"), CudaError);
    });
}

TEST_CASE("sequences with more ids than their bound are reported; those beyond are left alone") {
  run_ranks(1, [](ThreadCommunicator& threads) {
    const gpu::Stream stream;
    const Cuda backend({.stream = stream.get()});
    simt::StreamCommunicator communicator(threads, stream.get());
    LayoutCollection<Widths<4, 8>, Sgd, Cuda, simt::StreamCommunicator> e(
        communicator, backend,
        make_layout({1}, {{"t", 9, 4}}, {{"h", "t", Pooling::none}, {"m", "t", Pooling::max}},
                    {{0, {0, 9, 0, 4}, 0}}),
        {.learning_rate = 1, .equal_batches = true});
    std::vector<float> rows(36), after(36);
    for (std::size_t i = 0; i < 36; ++i) rows[i] = static_cast<float>(i);
    e.tables().set("t", {rows.data(), 9, 4});
    const auto row = [&](std::size_t id) { return std::span(rows).subspan(4 * id, 4); };
    const auto equal = [](auto a, auto b) { return std::ranges::equal(a, b); };
    const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
    const Array<std::int64_t, Cuda> offsets(backend, std::vector<std::int64_t>{0, 2, 3, 4, 6});
    const std::vector<std::int64_t> bounds{2, 2};
    const Array<float, Cuda> output(backend, std::vector<float>(8)),
        x(backend, std::vector<float>(8));
    const MatrixView<float> pooled(output.data(), 2, 4), vectors(x.data(), 2, 4);
    const auto found =
        e.forward(KeyedJagged<std::int32_t>{2, 2, ids.span(), offsets.span(), {}, bounds}, pooled);
    const auto view = found.sequence(0);
    REQUIRE(view.ids() == 2);
    view.materialize(vectors);
    std::vector<std::int64_t> found_offsets(3);
    backend.copy(found_offsets.data(), view.offsets().data(), 3 * sizeof(std::int64_t));
    backend.synchronize();
    CHECK((found_offsets == std::vector<std::int64_t>{0, 2, 2}));
    const std::vector<float> seen = x.read(), maxima = output.read();
    CHECK(equal(std::span(seen).first(4), row(1)));
    CHECK(equal(std::span(seen).last(4), row(2)));
    CHECK(equal(std::span(maxima).first(4), row(4)));
    CHECK(equal(std::span(maxima).last(4), row(5)));
    e.backward(found, pooled, {view.per_id(vectors)});
    CHECK_THROWS_WITH_AS(e.bad_ids(), "KeyedJagged: feature 0 ('h') has 3 ids, more than its bound",
                         InvalidArgument);
    e.tables().get("t", {after.data(), 9, 4});
    for (std::size_t id = 0; id < 9; ++id)
      for (std::size_t i = 0; i < 4; ++i) {
        const bool moved = id == 1 || id == 2 || id == 4 || id == 5;
        CHECK(after[4 * id + i] == (moved ? 0 : rows[4 * id + i]));
      }
  });
}

TEST_CASE("steps of training groups, one of them frozen, as graphs on two ranks") {
  using Groups = TrainingGroups<Train<Adam>, Train<RowWiseAdagrad>, Frozen<>>;
  run_ranks(2, [](ThreadCommunicator& threads) {
    const gpu::Stream stream;
    simt::StreamCommunicator communicator(threads, stream.get());
    const std::vector<float> called = train_rank<Groups>(communicator, stream, false, true, true);
    CHECK((train_rank<Groups>(communicator, stream, true, true, true) == called));
  });
}

TEST_CASE("ranks that copy with the host are refused tables and gradients of a device") {
  run_ranks(2, [](ThreadCommunicator& threads) {
    auto nodes = make_hierarchical(threads, 1);
    AnyCommunicator any(nodes);
    const Cuda backend;
    const std::string text =
        "the communicator copies with the host (HierarchicalCommunicator does) and cannot take the "
        "memory of a device";
    CHECK(message_of([&] {
            const LayoutCollection<Widths<4, 8>, Sgd, Cuda, AnyCommunicator> e(
                any, backend, rank_layout(2, false), {});
          }) == text);
    const Array<float, Cuda> gradients(backend, std::vector<float>(3));
    CHECK(message_of([&] {
            const BucketedAllReduce buckets(nodes, gradients.span(), 4, backend, backend);
          }) == text);
  });
}

TEST_CASE(
    "steps of several ranks in streams that do their work late: called, as graphs, routed "
    "ahead on another stream, and with gradients in buckets") {
  constexpr int ranks = 2;
  // The bodies that run over NCCL on a GPU: every rank compares with what it does in turn.
  const auto two_communicators = [&] {
    ThreadGroup other_group(ranks);
    run_ranks(ranks, [&](ThreadCommunicator& threads) {
      const gpu::Stream stream, other;
      ThreadCommunicator other_threads(other_group, threads.rank());
      simt::StreamCommunicator communicator(threads, stream.get()),
          second(other_threads, other.get());
      CHECK(ahead_trains_like_in_turn(communicator, second, stream, other));
      CHECK(buckets_sum_like_one_call(communicator, second, stream, other));
    });
  };
  std::vector<float> called[ranks];
  const auto graphs_too = [&](bool captured) {
    run_ranks(ranks, [&](ThreadCommunicator& threads) {
      const gpu::Stream stream;
      simt::StreamCommunicator communicator(threads, stream.get());
      std::vector<float>& expected = called[threads.rank()];
      const std::vector<float> seen = train_rank<Sgd>(communicator, stream, captured, true, true);
      if (captured) CHECK((seen == expected));
      if (!captured) expected = seen;
    });
  };
  graphs_too(false);
  under_every_deferral([&] {
    two_communicators();
    graphs_too(true);
  });
  if (simt::has_asan) return;  // one stream, and slow
  const simt::DeferredStreams scope({.first = simt::Deferral::First::any, .seed = 3});
  CHECK(
      (train<Plain>(true, Batches::bounded, true) == train<Plain>(false, Batches::bounded, true)));
}
