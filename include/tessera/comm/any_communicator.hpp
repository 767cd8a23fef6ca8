// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace tessera { inline namespace v0 {

/// A communicator chosen at run time: what uses it is compiled once, whatever the command line
/// says. Refers to the given communicator, which must outlive it. A call costs one virtual call;
/// what is not summed travels as bytes, so that the ranks of one job use it all or not at all, and
/// errors about counts speak of bytes.
///
///     AnyCommunicator any(communicator);  // a reference: MPI, NCCL or threads
///     EmbeddingCollection<MyPlan, Sgd, Host, AnyCommunicator> embeddings(any, Host(), {});
class AnyCommunicator {
 public:
  template <class C>
    requires Communicator<C> && (!std::same_as<C, AnyCommunicator>)
  explicit AnyCommunicator(C& communicator) : model_(std::make_unique<Model<C>>(communicator)) {}

  int rank() const { return model_->rank(); }
  int size() const { return model_->size(); }

  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    model_->all_to_all(std::as_bytes(send), scaled<T>(send_counts, 0),
                       std::as_writable_bytes(receive), scaled<T>(receive_counts, 1));
  }

  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    model_->all_gather(std::as_bytes(send), std::as_writable_bytes(receive), scaled<T>(counts, 0));
  }

  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    model_->all_reduce(values, reduction);
  }

  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    model_->reduce_scatter(send.data(), send.size(), receive, counts);
  }

  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    model_->broadcast(std::as_writable_bytes(values), root);
  }

  void barrier() { model_->barrier(); }

  /// Makes `calls` as the given communicator's `group`, if it has one.
  void group(const std::function<void()>& calls) { model_->group(calls); }

  /// Returns whether the given communicator's calls go to a stream.
  bool queues_calls() const { return model_->queues_calls(); }
  /// Returns whether the given communicator takes host memory alone.
  bool host_memory_only() const { return model_->host_memory_only(); }

  /// Ends a wait of another thread in the given communicator, if that can be done: nothing else
  /// happens to one without `interrupt`.
  void interrupt(const std::string& text) { model_->interrupt(text); }

 private:
  using Counts = std::span<const std::size_t>;
  using Bytes = std::span<std::byte>;
  using ConstBytes = std::span<const std::byte>;
  using Numbers = std::variant<std::span<float>, std::span<double>, std::span<std::int32_t>,
                               std::span<std::int64_t>, std::span<std::uint64_t>>;

  struct Interface {
    virtual ~Interface() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual bool queues_calls() const = 0;
    virtual bool host_memory_only() const = 0;
    virtual void all_to_all(ConstBytes send, Counts send_counts, Bytes receive,
                            Counts receive_counts) = 0;
    virtual void all_gather(ConstBytes send, Bytes receive, Counts counts) = 0;
    virtual void all_reduce(Numbers values, Reduction reduction) = 0;
    virtual void reduce_scatter(const void* send, std::size_t size, Numbers receive,
                                Counts counts) = 0;
    virtual void broadcast(Bytes values, int root) = 0;
    virtual void barrier() = 0;
    virtual void group(const std::function<void()>& calls) = 0;
    virtual void interrupt(const std::string& text) = 0;
  };

  template <class C>
  struct Model final : Interface {
    explicit Model(C& c) : communicator(c) {}
    int rank() const override { return communicator.rank(); }
    int size() const override { return communicator.size(); }
    bool queues_calls() const override { return tessera::detail::queues_calls(communicator); }
    bool host_memory_only() const override {
      return tessera::detail::host_memory_only(communicator);
    }
    void all_to_all(ConstBytes send, Counts send_counts, Bytes receive,
                    Counts receive_counts) override {
      communicator.all_to_all(send, send_counts, receive, receive_counts);
    }
    void all_gather(ConstBytes send, Bytes receive, Counts counts) override {
      communicator.all_gather(send, receive, counts);
    }
    void all_reduce(Numbers values, Reduction reduction) override {
      std::visit([&](auto span) { communicator.all_reduce(span, reduction); }, values);
    }
    void reduce_scatter(const void* send, std::size_t size, Numbers receive,
                        Counts counts) override {
      std::visit(
          [&]<class T>(std::span<T> span) {
            communicator.reduce_scatter(std::span<const T>(static_cast<const T*>(send), size), span,
                                        counts);
          },
          receive);
    }
    void broadcast(Bytes values, int root) override { communicator.broadcast(values, root); }
    void barrier() override { communicator.barrier(); }
    void group(const std::function<void()>& calls) override {
      tessera::detail::together(communicator, calls);
    }
    void interrupt(const std::string& text) override {
      if constexpr (requires { communicator.interrupt(text); }) communicator.interrupt(text);
    }

    C& communicator;
  };

  /// Counts of T in bytes; `which`: of the two lists that a call may need.
  template <class T>
  Counts scaled(Counts counts, int which) {
    std::vector<std::size_t>& bytes = scaled_[which];
    bytes.clear();
    for (const std::size_t count : counts) bytes.push_back(count * sizeof(T));
    return bytes;
  }

  std::unique_ptr<Interface> model_;
  std::vector<std::size_t> scaled_[2];
};

static_assert(Communicator<AnyCommunicator>);

}}  // namespace tessera::v0
