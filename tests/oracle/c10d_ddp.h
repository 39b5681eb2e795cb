// LibTorch's own reducer over Gloo, used in the same way as by Python's DistributedDataParallel:
// the second oracle.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#ifndef USE_C10D_GLOO  // LibTorch's header is empty without it
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <tests/oracle/oracle_models.h>

namespace lockstep::oracle {

class C10dDdp {
 public:
  /// `store_file` is the path of the file store through which the ranks meet.
  C10dDdp(const Model& model, const std::string& store_file, int rank, int size)
      : find_unused_(model.find_unused_parameters), buffers_(model.module->buffers()) {
    auto store = c10::make_intrusive<c10d::FileStore>(store_file, size);
    auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    group_ = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
    group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                       c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options));
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);

    std::vector<torch::Tensor> parameters, state = buffers_;
    std::vector<bool> sparse;
    std::unordered_map<std::size_t, std::string> names;
    for (const auto& item : model.module->named_parameters()) {
      const auto same = [&](const torch::Tensor& other) { return other.is_same(item.value()); };
      if (std::any_of(parameters.begin(), parameters.end(), same)) continue;
      names[parameters.size()] = item.key();
      sparse.push_back(std::find(model.sparse.begin(), model.sparse.end(), item.key()) !=
                       model.sparse.end());
      parameters.push_back(item.value());
      state.push_back(item.value().detach());
    }
    c10d::broadcast_coalesced(group_, state, kBroadcastBytes);
    auto buckets =
        std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {kFirst, kCap}, sparse));
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters, std::move(buckets), group_, sparse, kCap, find_unused_,
        /*gradient_as_bucket_view=*/false, names, kFirst, /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, std::vector<std::int64_t>());
    // Without a logger, the reducer dereferences a null pointer when it looks for unused
    // parameters.
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
  }

  torch::Tensor forward(const std::function<torch::Tensor()>& run) {
    if (reducer_->should_rebuild_buckets()) reducer_->rebuild_buckets();
    if (!buffers_.empty()) c10d::broadcast_coalesced(group_, buffers_, kBroadcastBytes);
    reducer_->prepare_for_forward();
    torch::Tensor output = run();
    reducer_->prepare_for_backward(find_unused_ ? std::vector<torch::Tensor>{output}
                                                : std::vector<torch::Tensor>{});
    return output;
  }

 private:
  static constexpr std::size_t kFirst = std::size_t{1} << 20;
  static constexpr std::size_t kCap = std::size_t{25} << 20;
  static constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;

  bool find_unused_;
  std::vector<torch::Tensor> buffers_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

}  // namespace lockstep::oracle
