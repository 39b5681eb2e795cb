// The adapter of PyTorch's own libraries (c10d::Backend: Gloo, NCCL) to comm::Backend.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/backends/c10d/context.h>
#include <lockstep/comm/backends/c10d/reduction.h>

namespace lockstep::c10d_adapter {

/// The collectives, which the libraries have in common. A derived class, in its library's folder,
/// turns the library's operations into Works and sends messages.
class C10dBackend : public comm::Backend {
 public:
  const std::string& name() const final { return context_.name(); }
  comm::Watchdog* watchdog() final { return &context_.watchdog(); }
  c10d::Backend* library() final { return &context_.library(); }
  std::shared_ptr<Work> start(const comm::Collective& call) final;
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) final;
  void check() final { context_.watchdog().throw_if_ended(); }
  void abort(const std::string& reason) final { context_.abort(reason); }

 protected:
  using Finish = std::function<void()>;

  /// The derived class keeps `context` alive. `reductions` must live as long as this object.
  C10dBackend(Context& context, const LibraryReductions& reductions)
      : context_(context), reductions_(reductions) {}

  /// Starts an operation of the library by calling `function`. `finish` turns the library's result
  /// into the result of the call; may be empty.
  virtual std::shared_ptr<Work> collective(const comm::Collective& call,
                                           const std::function<WorkHandle()>& function,
                                           Finish finish) = 0;
  virtual std::shared_ptr<Work> all_to_all(const comm::Collective& call,
                                           const torch::Tensor& output, Finish finish);

 private:
  torch::Tensor library_memory(at::IntArrayRef shape, const torch::TensorOptions& options);
  std::chrono::milliseconds timeout() const { return context_.options().timeout; }
  std::vector<at::Tensor> pieces_of(const torch::Tensor& tensor);
  torch::Tensor scratch(const torch::Tensor& like, std::int64_t pieces);
  bool library_does(const comm::Collective& call) const;
  LibraryReduction prepared(const comm::Collective& call, const torch::Tensor& tensor,
                            bool in_place);
  Finish combining(const comm::Collective& call, torch::Tensor destination, torch::Tensor pieces);

  std::shared_ptr<Work> barrier(const comm::Collective& call);
  std::shared_ptr<Work> broadcast(const comm::Collective& call);
  std::shared_ptr<Work> all_reduce(const comm::Collective& call);
  std::shared_ptr<Work> reduce(const comm::Collective& call);
  std::shared_ptr<Work> reduce_scatter(const comm::Collective& call);
  std::shared_ptr<Work> gather(const comm::Collective& call, const torch::Tensor& output,
                               Finish finish);
  std::shared_ptr<Work> scatter(const comm::Collective& call);
  std::shared_ptr<Work> all_gather(const comm::Collective& call, const torch::Tensor& input,
                                   const torch::Tensor& output, Finish finish);

  Context& context_;
  const LibraryReductions& reductions_;
};

/// The tensor as bytes. Data that is only moved is sent in this form, so it need not be of a type
/// that the library supports.
at::Tensor bytes_of(const torch::Tensor& tensor);

/// A send or a receive, for messages and for the watchdog. `peer` is -1 for any rank.
Call message_call(CallKind kind, const torch::Tensor& tensor, int peer,
                  const comm::MessageTag& tag);

}  // namespace lockstep::c10d_adapter
