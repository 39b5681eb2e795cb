// Point-to-point messages between ranks of one process, for tests of code that uses messages.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::testing_support {

/// Transfers messages between LoopbackBackends. A send completes when the message has been received
/// (a rendezvous), so algorithms that rely on buffering hang. Messages of a pair with the same tag
/// keep their order.
class Loopback {
 public:
  struct Transfer {
    torch::Tensor tensor;
    std::atomic<bool> done = false;
    std::exception_ptr error;
  };
  using TransferPtr = std::shared_ptr<Transfer>;

  TransferPtr send(torch::Tensor tensor, int source, int destination, int tag) {
    return post(std::move(tensor), {source, destination, tag}, true);
  }
  TransferPtr receive(torch::Tensor tensor, int source, int destination, int tag) {
    return post(std::move(tensor), {source, destination, tag}, false);
  }

  /// Makes all transfers from or to `rank` fail, including transfers under way.
  void break_rank(int rank, std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    broken_ = rank;
    error_ = std::move(error);
    for (auto& [key, pair] : queues_) {
      if (!is_broken(key)) continue;
      for (auto* queue : {&pair.sends, &pair.receives}) {
        for (auto& transfer : *queue) fail(*transfer);
        queue->clear();
      }
    }
  }

  bool idle() {
    const std::scoped_lock lock(mutex_);
    for (auto& [key, pair] : queues_) {
      if (!pair.sends.empty() || !pair.receives.empty()) return false;
    }
    return true;
  }

 private:
  using Key = std::tuple<int, int, int>;
  struct Queues {
    std::deque<TransferPtr> sends, receives;
  };

  bool is_broken(const Key& key) const {
    return std::get<0>(key) == broken_ || std::get<1>(key) == broken_;
  }
  void fail(Transfer& transfer) {
    transfer.error = error_;
    transfer.done = true;
  }

  TransferPtr post(torch::Tensor tensor, Key key, bool sends) {
    const auto transfer = std::make_shared<Transfer>();
    transfer->tensor = std::move(tensor);
    const std::scoped_lock lock(mutex_);
    if (is_broken(key)) {
      fail(*transfer);
      return transfer;
    }
    Queues& queues = queues_[key];
    (sends ? queues.sends : queues.receives).push_back(transfer);
    if (!queues.sends.empty() && !queues.receives.empty()) match(queues);
    return transfer;
  }

  static void match(Queues& queues) {
    Transfer& from = *queues.sends.front();
    Transfer& to = *queues.receives.front();
    LOCKSTEP_CHECK(from.tensor.nbytes() == to.tensor.nbytes(), "sent ", from.tensor.nbytes(),
                   ", expected ", to.tensor.nbytes(), " bytes");
    std::memcpy(to.tensor.data_ptr(), from.tensor.data_ptr(), from.tensor.nbytes());
    from.tensor.reset();
    to.tensor.reset();
    from.done = true;
    to.done = true;
    queues.sends.pop_front();
    queues.receives.pop_front();
  }

  std::mutex mutex_;
  std::map<Key, Queues> queues_;
  int broken_ = -1;
  std::exception_ptr error_;
};

class LoopbackWork final : public Work {
 public:
  explicit LoopbackWork(Loopback::TransferPtr transfer) : transfer_(std::move(transfer)) {}
  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    const Deadline deadline(timeout.value_or(std::chrono::seconds(30)));
    while (!transfer_->done) {
      if (deadline.expired()) throw TimeoutError("loopback: nobody came");
      std::this_thread::yield();
    }
    if (transfer_->error) std::rethrow_exception(transfer_->error);
  }
  bool is_completed() override { return transfer_->done; }
  std::exception_ptr error() const override { return transfer_->done ? transfer_->error : nullptr; }

 private:
  const Loopback::TransferPtr transfer_;
};

class LoopbackBackend final : public comm::Backend {
 public:
  LoopbackBackend(std::shared_ptr<Loopback> loopback, int rank)
      : loopback_(std::move(loopback)), rank_(rank) {}

  const std::string& name() const override { return name_; }
  const BackendTraits& traits() const override { return its_traits; }
  std::shared_ptr<Work> start(const comm::Collective&) override {
    throw InternalError("loopback: point-to-point only");
  }
  std::shared_ptr<Work> send(torch::Tensor tensor, int destination, comm::MessageTag tag) override {
    if (fail_next_send) throw std::runtime_error("the send that was to fail");
    return std::make_shared<LoopbackWork>(
        loopback_->send(std::move(tensor), rank_, destination, tag.value));
  }
  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                             comm::MessageTag tag) override {
    return std::make_shared<LoopbackWork>(
        loopback_->receive(std::move(tensor), source.value(), rank_, tag.value));
  }
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    return torch::zeros(shape, dtype);
  }
  void abort(const std::string& reason) override { abort_reason = reason; }
  void check() override {}

  BackendTraits its_traits{};
  bool fail_next_send = false;
  std::string abort_reason;

 private:
  const std::string name_ = "loopback";
  const std::shared_ptr<Loopback> loopback_;
  const int rank_;
};

}  // namespace lockstep::testing_support
