// A library of PyTorch that obeys the test, and a rank that uses it as it would use Gloo.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/gloo/gloo_backend.h>
#include <tests/comm/backends/backend_oracle.h>

namespace lockstep::testing_support {

/// A library whose sums end when the test says so, and in which no message arrives.
class ToldBackend final : public c10d::Backend {
 public:
  class Sum final : public c10d::Work {
   public:
    Sum() : Work(0, c10d::OpType::ALLREDUCE) {}
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    void end(const std::exception_ptr& error = nullptr) {
      finish(error);
      error ? future_->setError(error) : future_->markCompleted(c10::IValue());
    }

   private:
    const c10::intrusive_ptr<c10::ivalue::Future> future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
  };
  class Receive final : public c10d::Work {
   public:
    Receive() : Work(0, c10d::OpType::RECV) {}
    bool wait(std::chrono::milliseconds) override {
      if (fails) throw std::runtime_error("[/build/gloo/pair.cc:534] Connection closed by peer");
      return false;
    }
    void abort() override {
      finish();  // Gloo, too, reports it as complete once a wait for it was interrupted
      ++interruptions;
    }
    std::atomic<int> interruptions = 0;
    std::atomic<bool> fails = false;
  };

  explicit ToldBackend(int size = 2) : c10d::Backend(0, size) {}
  const std::string getBackendName() const override { return "told"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&,
                                           const c10d::AllreduceOptions&) override {
    if (!refusal.empty()) throw std::runtime_error(refusal);
    return sum = c10::make_intrusive<Sum>();
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>&, int, int tag) override {
    auto receive = c10::make_intrusive<Receive>();
    if (tag != std::numeric_limits<int>::max()) message = receive;
    return receive;
  }
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>&, int) override {
    return message = c10::make_intrusive<Receive>();
  }

  c10::intrusive_ptr<Sum> sum;          ///< the last one
  c10::intrusive_ptr<Receive> message;  ///< the last one that is no probe of a connection
  std::string refusal;                  ///< why it starts no sum; empty: it starts them
};

/// Rank 0 of two ranks, or of one.
struct ToldCaller {
  explicit ToldCaller(
      std::vector<int> world_ranks = {}, int size = 2,
      c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>())
      : library(c10::make_intrusive<ToldBackend>(size)),
        store(std::move(store)),
        caller(gloo::adapt(library, this->store,
                           {.timeout = std::chrono::seconds(30),
                            .world_ranks = std::move(world_ranks),
                            .store_rank = -1}),
               0, size) {}
  std::shared_ptr<Work> start_sum(torch::Tensor tensor) {
    return caller.start(CallKind::kAllReduce, {}, std::move(tensor));
  }

  const c10::intrusive_ptr<ToldBackend> library;
  const c10::intrusive_ptr<c10d::Store> store;
  Caller caller;
};

}  // namespace lockstep::testing_support
