#include "backend.h"

#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>

#include <lockstep/comm/group/connect.h>
#include <lockstep/comm/group/group_work.h>
#include <lockstep/core/environment.h>

#include "errors.h"
#include "gil.h"
#include "monitored_barrier.h"
#include "reduce_op.h"
#include "several_tensors.h"
#include "sparse.h"

namespace lockstep_c10d {
namespace {

/// State that outlives its backend when the backend is shut down at interpreter exit.
struct Live {
  lockstep::ProcessGroup group;
  std::shared_ptr<ProgressThreads> progress;
  pid_t process;
};
std::mutex live_mutex;
std::map<const LockstepBackend*, Live> live;

// A forked child inherits the exit handlers of its parent and must not end the parent's group.
void leave(lockstep::ProcessGroup& group, ProgressThreads& progress, pid_t process) {
  if (getpid() != process) return;
  if (progress.is_busy()) group.abort("the group was left with operations under way");
  progress.stop();
}

/// The list of a rooted call, which has one list on the root and none elsewhere.
std::vector<at::Tensor> list_on_root(const std::vector<std::vector<at::Tensor>>& lists) {
  return lists.empty() ? std::vector<at::Tensor>() : lists.front();
}

std::vector<at::Tensor> all_of(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void check_same_length(const char* what, std::size_t outputs, std::size_t inputs) {
  if (outputs != inputs) {
    C10_THROW_ERROR(ValueError, lockstep::str(what, ": got ", outputs, " outputs for ", inputs,
                                              " inputs, expected one for each"));
  }
}

template <typename Begin>
lockstep::WorkPtr one_for_each(std::size_t count, const Begin& begin) {
  std::vector<lockstep::WorkPtr> works;
  for (std::size_t i = 0; i < count; ++i) works.push_back(begin(i));
  return std::make_shared<lockstep::comm::WorkList>(std::move(works));
}

}  // namespace

LockstepBackend::LockstepBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                 int world_rank, std::chrono::milliseconds timeout)
    : Backend(rank, size), timeout_(timeout) {
  const WithoutGil without_gil;
  try {
    group_ = lockstep::comm::join_store(
        std::move(store), rank, size,
        {.timeout = timeout,
         .environment = lockstep::WorkerEnvironment{
             .rank = world_rank,
             // torchrun keeps its store when it restarts all ranks.
             .restart_count = static_cast<int>(
                 lockstep::environment_integer("TORCHELASTIC_RESTART_COUNT").value_or(0))}});
    // With more ranks than processors, polling would take processor time from the awaited rank.
    const bool processor_for_each = group_->local_size() <= sysconf(_SC_NPROCESSORS_ONLN);
    const auto spin = lockstep::environment_integer("LOCKSTEP_FUTURE_SPIN_US");
    spin_ = std::chrono::microseconds(spin.value_or(processor_for_each ? 200 : 0));
  } catch (...) {
    throw_for_python();
  }
  const std::scoped_lock lock(live_mutex);
  live.emplace(this, Live{*group_, progress_, process_});
}

LockstepBackend::~LockstepBackend() {
  {
    const std::scoped_lock lock(live_mutex);
    live.erase(this);
  }
  shutdown();
}

void shut_down_all() {
  const WithoutGil without_gil;
  std::map<const LockstepBackend*, Live> left;
  {
    const std::scoped_lock lock(live_mutex);
    left.swap(live);
  }
  for (auto& [backend, each] : left) leave(each.group, *each.progress, each.process);
}

c10::intrusive_ptr<c10d::Backend::Options> LockstepBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(getBackendName(), timeout_.load());
}

void LockstepBackend::abort() { group_->abort("torch.distributed aborted the group"); }

void LockstepBackend::shutdown() {
  const WithoutGil without_gil;
  leave(*group_, *progress_, process_);
}

std::chrono::milliseconds LockstepBackend::limit(std::chrono::milliseconds timeout) const {
  return timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout;
}

template <typename Begin>
LockstepBackend::WorkPtr LockstepBackend::start(const Call& call, const Tensors& inputs,
                                                Tensors outputs, const Begin& begin) {
  const bool message = c10d::isP2POp(call.type);
  const OperationOptions options{
      .type = call.type,
      .title = call.title,
      .sequence = message ? sequence_.load() : sequence_.fetch_add(1) + 1,
      .timeout = limit(call.timeout),
      .spin = spin_};
  try {
    return c10::make_intrusive<Operation>(begin(), inputs, std::move(outputs), rank_, progress_,
                                          options);
  } catch (...) {
    throw_for_python();
  }
}

LockstepBackend::WorkPtr LockstepBackend::broadcast(Tensors& tensors,
                                                    const c10d::BroadcastOptions& options) {
  return start(
      {c10d::OpType::BROADCAST, "lockstep:broadcast", options.timeout}, tensors, tensors, [&] {
        return lockstep_c10d::broadcast(*group_, tensors, static_cast<int>(options.rootRank),
                                        static_cast<int>(options.rootTensor));
      });
}

LockstepBackend::WorkPtr LockstepBackend::allreduce(Tensors& tensors,
                                                    const c10d::AllreduceOptions& options) {
  return start(
      {c10d::OpType::ALLREDUCE, "lockstep:all_reduce", options.timeout}, tensors, tensors, [&] {
        const auto op = reduce_op(options.reduceOp);
        return is_sparse(tensors) ? all_reduce_sparse(*group_, tensors, op, limit(options.timeout))
                                  : all_reduce(*group_, tensors, op);
      });
}

LockstepBackend::WorkPtr LockstepBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return start(
      {c10d::OpType::ALLREDUCE_COALESCED, "lockstep:all_reduce_coalesced", options.timeout},
      tensors, tensors,
      [&] { return group_->async_all_reduce_coalesced(tensors, reduce_op(options.reduceOp)); });
}

LockstepBackend::WorkPtr LockstepBackend::reduce(Tensors& tensors,
                                                 const c10d::ReduceOptions& options) {
  return start({c10d::OpType::REDUCE, "lockstep:reduce", options.timeout}, tensors, tensors, [&] {
    return group_->async_reduce(single(tensors, "reduce"), static_cast<int>(options.rootRank),
                                reduce_op(options.reduceOp));
  });
}

LockstepBackend::WorkPtr LockstepBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  return start({c10d::OpType::ALLGATHER, "lockstep:all_gather", options.timeout}, inputs,
               all_of(outputs), [&] { return all_gather(*group_, outputs, inputs); });
}

LockstepBackend::WorkPtr LockstepBackend::_allgather_base(Tensor& output, Tensor& input,
                                                          const c10d::AllgatherOptions& options) {
  return start({c10d::OpType::_ALLGATHER_BASE, "lockstep:all_gather_into_tensor", options.timeout},
               {input}, {output},
               [&] { return group_->async_all_gather_into_tensor(output, input); });
}

LockstepBackend::WorkPtr LockstepBackend::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check_same_length("all_gather_coalesced", outputs.size(), static_cast<std::size_t>(size_));
  for (const Tensors& list : outputs)
    check_same_length("all_gather_coalesced", list.size(), inputs.size());
  return start(
      {c10d::OpType::ALLGATHER_COALESCED, "lockstep:all_gather_coalesced", options.timeout}, inputs,
      all_of(outputs), [&] {
        return one_for_each(inputs.size(), [&](std::size_t i) {
          Tensors pieces;
          for (const Tensors& list : outputs) pieces.push_back(list[i]);
          return group_->async_all_gather(std::move(pieces), inputs[i]);
        });
      });
}

LockstepBackend::WorkPtr LockstepBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check_same_length("all_gather_into_tensor_coalesced", outputs.size(), inputs.size());
  return start(
      {c10d::OpType::COALESCED, "lockstep:all_gather_into_tensor_coalesced", options.timeout},
      inputs, outputs, [&] {
        return one_for_each(inputs.size(), [&](std::size_t i) {
          return group_->async_all_gather_into_tensor(outputs[i], inputs[i]);
        });
      });
}

LockstepBackend::WorkPtr LockstepBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::GatherOptions& options) {
  return start({c10d::OpType::GATHER, "lockstep:gather", options.timeout}, inputs,
               list_on_root(outputs), [&] {
                 return group_->async_gather(single(inputs, "gather"), list_on_root(outputs),
                                             static_cast<int>(options.rootRank));
               });
}

LockstepBackend::WorkPtr LockstepBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ScatterOptions& options) {
  return start({c10d::OpType::SCATTER, "lockstep:scatter", options.timeout}, list_on_root(inputs),
               outputs, [&] {
                 return group_->async_scatter(single(outputs, "scatter"), list_on_root(inputs),
                                              static_cast<int>(options.rootRank));
               });
}

LockstepBackend::WorkPtr LockstepBackend::reduce_scatter(
    Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) {
  check_same_length("reduce_scatter", outputs.size(), inputs.size());
  const Tensor& output = single(outputs, "reduce_scatter");
  return start({c10d::OpType::REDUCE_SCATTER, "lockstep:reduce_scatter", options.timeout},
               inputs.front(), outputs, [&] {
                 return group_->async_reduce_scatter(output, inputs.front(),
                                                     reduce_op(options.reduceOp));
               });
}

LockstepBackend::WorkPtr LockstepBackend::_reduce_scatter_base(
    Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) {
  return start(
      {c10d::OpType::_REDUCE_SCATTER_BASE, "lockstep:reduce_scatter_tensor", options.timeout},
      {input}, {output}, [&] {
        return group_->async_reduce_scatter_tensor(output, input, reduce_op(options.reduceOp));
      });
}

LockstepBackend::WorkPtr LockstepBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_same_length("reduce_scatter_tensor_coalesced", outputs.size(), inputs.size());
  // PyTorch 2.11 has no OpType for this call.
  return start({c10d::OpType::_REDUCE_SCATTER_BASE, "lockstep:reduce_scatter_tensor_coalesced",
                options.timeout},
               inputs, outputs, [&] {
                 return one_for_each(inputs.size(), [&](std::size_t i) {
                   return group_->async_reduce_scatter_tensor(outputs[i], inputs[i],
                                                              reduce_op(options.reduceOp));
                 });
               });
}

LockstepBackend::WorkPtr LockstepBackend::alltoall_base(Tensor& output, Tensor& input,
                                                        std::vector<std::int64_t>& output_splits,
                                                        std::vector<std::int64_t>& input_splits,
                                                        const c10d::AllToAllOptions& options) {
  return start({c10d::OpType::ALLTOALL_BASE, "lockstep:all_to_all_single", options.timeout},
               {input}, {output}, [&] {
                 return group_->async_all_to_all_single(output, input, output_splits, input_splits);
               });
}

LockstepBackend::WorkPtr LockstepBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllToAllOptions& options) {
  return start({c10d::OpType::ALLTOALL, "lockstep:all_to_all", options.timeout}, inputs, outputs,
               [&] { return group_->async_all_to_all(outputs, inputs); });
}

LockstepBackend::WorkPtr LockstepBackend::send(Tensors& tensors, int destination, int tag) {
  return start({c10d::OpType::SEND, "lockstep:send"}, tensors, tensors,
               [&] { return group_->isend(single(tensors, "send"), destination, tag); });
}

LockstepBackend::WorkPtr LockstepBackend::recv(Tensors& tensors, int source, int tag) {
  return start({c10d::OpType::RECV, "lockstep:recv"}, tensors, tensors,
               [&] { return group_->irecv(single(tensors, "recv"), source, tag); });
}

LockstepBackend::WorkPtr LockstepBackend::recvAnysource(Tensors& tensors, int tag) {
  return start({c10d::OpType::RECVANYSOURCE, "lockstep:recvAnySource"}, tensors, tensors,
               [&] { return group_->irecv(single(tensors, "recv"), std::nullopt, tag); });
}

LockstepBackend::WorkPtr LockstepBackend::barrier(const c10d::BarrierOptions& options) {
  return start({c10d::OpType::BARRIER, "lockstep:barrier", options.timeout}, {}, {},
               [&] { return group_->async_barrier(); });
}

void LockstepBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const WithoutGil without_gil;
  try {
    monitored_barrier(*group_, limit(options.timeout), timeout_.load(), wait_all_ranks);
  } catch (...) {
    throw_for_python();
  }
}

}  // namespace lockstep_c10d
