// Lockstep's side of the comparison with Python's communication hooks. comm_hooks_oracle.py runs
// both sides and describes the work and the exchanged files.
//
// Usage: comm_hooks --data FILE --out FILE [--backend shm]
#include <CLI/CLI.hpp>
#include <cstring>
#include <iostream>
#include <map>

#include <torch/utils.h>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/phased_work.h>
#include <tests/support/groups.h>

namespace {

using namespace lockstep;

using Tensors = std::map<std::string, torch::Tensor>;

constexpr int kRanks = 2;
const std::vector<std::vector<std::string>> kBuckets = {{"p4", "p3"}, {"p2", "p1", "p0"}};

Tensors read_tensors(const std::string& path) {
  const MappedFile file(path);
  Tensors tensors;
  for (const auto& [name, view] : parse_safetensors(file.bytes(), path).tensors) {
    if (view.dtype != "F32")
      throw DataError(path + ": '" + name + "' is " + view.dtype + ", expected F32");
    tensors[name] = torch::empty(view.shape);
    std::memcpy(tensors[name].data_ptr(), view.bytes.data(), view.bytes.size());
  }
  return tensors;
}

void write_tensors(const std::string& path, const Tensors& tensors) {
  TensorViews views;
  for (const auto& [name, tensor] : tensors) {
    const auto* bytes = static_cast<const std::byte*>(tensor.data_ptr());
    views[name] = {"F32", tensor.sizes().vec(), {bytes, tensor.nbytes()}};
  }
  write_safetensors(path, views);
}

std::vector<std::pair<std::string, CommHook>> make_hooks(const ProcessGroup& group) {
  const auto power_sgd = [&](PowerSgdOptions options) {
    options.start_power_sgd_iter = 2;
    return PowerSgd(group, options).hook();
  };
  return {{"fp16", fp16_compress_hook(group)},
          {"bf16", bf16_compress_hook(group)},
          {"power_sgd_1", power_sgd({.matrix_approximation_rank = 1})},
          {"power_sgd_2", power_sgd({.matrix_approximation_rank = 2})},
          {"power_sgd_3", power_sgd({.matrix_approximation_rank = 3, .random_seed = 5})},
          {"power_sgd_epsilon",
           power_sgd({.matrix_approximation_rank = 2, .orthogonalization_epsilon = 1e-8})},
          {"power_sgd_batched",
           power_sgd({.matrix_approximation_rank = 2, .batch_tensors_with_same_shape = true})},
          {"power_sgd_cold", power_sgd({.matrix_approximation_rank = 2,
                                        .use_error_feedback = false,
                                        .warm_start = false})}};
}

Tensors run_steps(const CommHook& hook, ProcessGroup group, const Tensors& data,
                  const std::string& name) {
  const std::string mine = "." + std::to_string(group.rank()) + ".";
  std::vector<GradBucket> buckets;
  for (const auto& members : kBuckets) {
    std::vector<lockstep::detail::NamedParameter> parameters;
    for (const auto& member : members)
      parameters.push_back({member, torch::zeros_like(data.at("0" + mine + member))});
    buckets.push_back(lockstep::detail::make_bucket(parameters, group, ParameterMemory::kAsIs));
    buckets.back().index = buckets.size() - 1;
  }
  buckets.back().is_last = true;
  Tensors results;
  for (int step = 0; data.contains(std::to_string(step) + mine + "p0"); ++step) {
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      for (std::size_t i = 0; i < kBuckets[b].size(); ++i) {
        buckets[b].gradients[i].copy_(data.at(std::to_string(step) + mine + kBuckets[b][i]));
      }
      works.push_back(hook(buckets[b]));
    }
    lockstep::detail::wait_for_all(works);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      for (std::size_t i = 0; i < kBuckets[b].size(); ++i) {
        results[name + "." + std::to_string(step) + "." + kBuckets[b][i]] =
            buckets[b].gradients[i].clone();
      }
    }
  }
  return results;
}

void run(const std::string& data_path, const std::string& out, const std::string& backend) {
  const Tensors data = read_tensors(data_path);
  const auto errors = testing_support::run_group(kRanks, backend, [&](ProcessGroup group) {
    Tensors results;
    for (const auto& [name, hook] : make_hooks(group))
      results.merge(run_steps(hook, group, data, name));
    if (group.rank() == 0) write_tensors(out, results);
  });
  for (const auto& error : errors) {
    if (!error.empty()) throw CommError(error);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string data, out, backend = "shm";
  CLI::App app("Runs communication hooks for the comparison with Python's");
  app.add_option("--data", data)->required();
  app.add_option("--out", out)->required();
  app.add_option("--backend", backend);
  CLI11_PARSE(app, argc, argv);
  try {
    torch::set_num_threads(1);
    run(data, out, backend);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return exit_code(error);
  }
}
