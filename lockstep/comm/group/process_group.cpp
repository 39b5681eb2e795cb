#include <lockstep/comm/group/process_group.h>

#include <utility>

#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/group/group_impl.h>
#include <lockstep/core/error.h>

namespace lockstep {

int ProcessGroup::rank() const { return impl_->membership.rank; }
int ProcessGroup::size() const { return impl_->membership.size; }
int ProcessGroup::local_rank() const { return impl_->membership.local_rank; }
int ProcessGroup::local_size() const { return impl_->membership.local_size; }
const std::string& ProcessGroup::backend() const { return impl_->backend->name(); }
const BackendTraits& ProcessGroup::traits() const { return impl_->backend->traits(); }
const std::vector<int>& ProcessGroup::world_ranks() const { return impl_->membership.world_ranks; }
std::chrono::milliseconds ProcessGroup::timeout() const {
  return impl_->membership.options.timeout;
}

bool ProcessGroup::runs_on_stream() const { return impl_->backend->runs_on_stream(); }

std::string ProcessGroup::why_not_capturable() const {
  if (!runs_on_stream()) {
    return lockstep::str("cannot communicate over ", backend(),
                         ", whose operations the host moves; use NCCL, with a GPU for each rank");
  }
  return impl_->checks_on_host();
}

std::vector<RecordedCall> ProcessGroup::recorded_calls(Clock::time_point from) const {
  return impl_->membership.recorder->completed_since(from);
}

// --- One tensor in, or out, on each rank ---------------------------------------------------------

void ProcessGroup::all_reduce(const torch::Tensor& tensor, ReduceOp op, Algorithm algorithm) {
  impl_->run(impl_->prepare.all_reduce(tensor, op, algorithm));
}
WorkPtr ProcessGroup::async_all_reduce(const torch::Tensor& tensor, ReduceOp op,
                                       Algorithm algorithm) {
  return impl_->start(impl_->prepare.all_reduce(tensor, op, algorithm));
}

void ProcessGroup::broadcast(const torch::Tensor& tensor, int root) {
  impl_->run(impl_->prepare.broadcast(tensor, root));
}
WorkPtr ProcessGroup::async_broadcast(const torch::Tensor& tensor, int root) {
  return impl_->start(impl_->prepare.broadcast(tensor, root));
}

void ProcessGroup::reduce(const torch::Tensor& tensor, int root, ReduceOp op) {
  impl_->run(impl_->prepare.reduce(tensor, root, op));
}
WorkPtr ProcessGroup::async_reduce(const torch::Tensor& tensor, int root, ReduceOp op) {
  return impl_->start(impl_->prepare.reduce(tensor, root, op));
}

void ProcessGroup::barrier() { impl_->run(impl_->prepare.barrier()); }
WorkPtr ProcessGroup::async_barrier() { return impl_->start(impl_->prepare.barrier()); }

void ProcessGroup::monitored_barrier(std::optional<std::chrono::milliseconds> timeout) {
  impl_->tell("monitored barrier", "", timeout);
}

// --- One piece for each rank ---------------------------------------------------------------------

void ProcessGroup::all_gather(Tensors outputs, const torch::Tensor& input) {
  impl_->run(impl_->prepare.all_gather(outputs, input));
}
WorkPtr ProcessGroup::async_all_gather(Tensors outputs, const torch::Tensor& input) {
  return impl_->start(impl_->prepare.all_gather(outputs, input));
}
void ProcessGroup::all_gather_into_tensor(const torch::Tensor& output, const torch::Tensor& input) {
  impl_->run(impl_->prepare.all_gather_into_tensor(output, input));
}
WorkPtr ProcessGroup::async_all_gather_into_tensor(const torch::Tensor& output,
                                                   const torch::Tensor& input) {
  return impl_->start(impl_->prepare.all_gather_into_tensor(output, input));
}

void ProcessGroup::gather(const torch::Tensor& input, Tensors outputs, int root) {
  impl_->run(impl_->prepare.gather(input, outputs, root));
}
WorkPtr ProcessGroup::async_gather(const torch::Tensor& input, Tensors outputs, int root) {
  return impl_->start(impl_->prepare.gather(input, outputs, root));
}

void ProcessGroup::scatter(const torch::Tensor& output, Tensors inputs, int root) {
  impl_->run(impl_->prepare.scatter(output, inputs, root));
}
WorkPtr ProcessGroup::async_scatter(const torch::Tensor& output, Tensors inputs, int root) {
  return impl_->start(impl_->prepare.scatter(output, inputs, root));
}

void ProcessGroup::reduce_scatter(const torch::Tensor& output, Tensors inputs, ReduceOp op) {
  impl_->run(impl_->prepare.reduce_scatter(output, inputs, op));
}
WorkPtr ProcessGroup::async_reduce_scatter(const torch::Tensor& output, Tensors inputs,
                                           ReduceOp op) {
  return impl_->start(impl_->prepare.reduce_scatter(output, inputs, op));
}
void ProcessGroup::reduce_scatter_tensor(const torch::Tensor& output, const torch::Tensor& input,
                                         ReduceOp op) {
  impl_->run(impl_->prepare.reduce_scatter_tensor(output, input, op));
}
WorkPtr ProcessGroup::async_reduce_scatter_tensor(const torch::Tensor& output,
                                                  const torch::Tensor& input, ReduceOp op) {
  return impl_->start(impl_->prepare.reduce_scatter_tensor(output, input, op));
}

void ProcessGroup::all_to_all(Tensors outputs, Tensors inputs) {
  impl_->run(impl_->prepare.all_to_all(outputs, inputs));
}
WorkPtr ProcessGroup::async_all_to_all(Tensors outputs, Tensors inputs) {
  return impl_->start(impl_->prepare.all_to_all(outputs, inputs));
}
void ProcessGroup::all_to_all_single(const torch::Tensor& output, const torch::Tensor& input,
                                     std::vector<std::int64_t> output_splits,
                                     std::vector<std::int64_t> input_splits) {
  impl_->run(impl_->prepare.all_to_all_single(output, input, output_splits, input_splits));
}
WorkPtr ProcessGroup::async_all_to_all_single(const torch::Tensor& output,
                                              const torch::Tensor& input,
                                              std::vector<std::int64_t> output_splits,
                                              std::vector<std::int64_t> input_splits) {
  return impl_->start(impl_->prepare.all_to_all_single(output, input, output_splits, input_splits));
}

// --- Many tensors --------------------------------------------------------------------------------

void ProcessGroup::all_reduce_coalesced(Tensors tensors, ReduceOp op) {
  async_all_reduce_coalesced(std::move(tensors), op)->wait();
}
WorkPtr ProcessGroup::async_all_reduce_coalesced(Tensors tensors, ReduceOp op) {
  return impl_->start(impl_->prepare.all_reduce_coalesced(tensors, op));
}
void ProcessGroup::broadcast_coalesced(Tensors tensors, int root) {
  async_broadcast_coalesced(std::move(tensors), root)->wait();
}
WorkPtr ProcessGroup::async_broadcast_coalesced(Tensors tensors, int root) {
  return impl_->start(impl_->prepare.broadcast_coalesced(tensors, root));
}

// --- Point-to-point ------------------------------------------------------------------------------

void ProcessGroup::send(const torch::Tensor& tensor, int destination, int tag) {
  impl_->run(impl_->prepare.send(tensor, destination, tag), tag);
}
WorkPtr ProcessGroup::isend(const torch::Tensor& tensor, int destination, int tag) {
  return impl_->start(impl_->prepare.send(tensor, destination, tag), tag);
}

int ProcessGroup::recv(const torch::Tensor& tensor, std::optional<int> source, int tag) {
  const int sender = impl_->run(impl_->prepare.recv(tensor, source, tag), tag);
  return source.value_or(sender);
}
WorkPtr ProcessGroup::irecv(const torch::Tensor& tensor, std::optional<int> source, int tag) {
  return impl_->start(impl_->prepare.recv(tensor, source, tag), tag);
}

std::vector<WorkPtr> ProcessGroup::batch_isend_irecv(const std::vector<P2POp>& operations) {
  // All messages are checked before the first one starts, so that an invalid one cannot leave half
  // a batch running.
  Tensors received(operations.size()), sent(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const P2POp& each = operations[i];
    const bool sends = each.kind == P2POp::Kind::kSend;
    sends ? impl_->prepare.check_send(each.tensor, each.peer, each.tag)
          : impl_->prepare.check_recv(each.tensor, each.peer, each.tag);
    (sends ? sent : received)[i] = each.tensor;
  }
  impl_->prepare.check_batch(received, sent);
  std::vector<comm::Prepared> prepared;
  std::vector<int> tags;
  for (const P2POp& each : operations) {
    tags.push_back(each.tag);
    prepared.push_back(each.kind == P2POp::Kind::kSend
                           ? impl_->prepare.send(each.tensor, each.peer, each.tag)
                           : impl_->prepare.recv(each.tensor, each.peer, each.tag));
  }
  return impl_->start_batch(std::move(prepared), tags);
}

// --- The group -----------------------------------------------------------------------------------

torch::Tensor ProcessGroup::allocate(at::IntArrayRef shape, torch::ScalarType dtype) {
  return impl_->allocate(shape, dtype);
}

Tensors ProcessGroup::peer_views(const torch::Tensor& tensor) const {
  return impl_->backend->peer_views(tensor);
}

bool ProcessGroup::shares_memory() const {
  return impl_->backend->shares_memory() && !impl_->works_through_host();
}

void ProcessGroup::abort(const std::string& reason) { impl_->backend->abort(reason); }

bool nccl_available() { return nccl::is_available(); }

}  // namespace lockstep
