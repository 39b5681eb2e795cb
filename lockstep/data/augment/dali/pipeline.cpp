#include <lockstep/data/augment/dali/pipeline.h>

#include <dlfcn.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/module_file.h>

namespace lockstep::data {
namespace {

constexpr std::size_t kErrorBytes = 4096;

const lockstep_dali_functions_v1* load_functions() {
  const std::string path = module_file(kDaliModule);
  // The handle stays open for the life of the process: DALI has threads and does not unload.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw ConfigError(str("Loader: the dali engine needs NVIDIA DALI, which cannot be loaded (",
                          dlerror(), "): run `make dali`, or set LoaderOptions::engine to native"));
  }
  const auto functions = reinterpret_cast<lockstep_dali_v1>(dlsym(handle, kDaliSymbol));
  if (functions == nullptr) {
    throw ConfigError(
        str("cannot use ", path, ": it belongs to another version of Lockstep; run `make dali`"));
  }
  return functions();
}

const lockstep_dali_functions_v1* functions() {
  static const lockstep_dali_functions_v1* const loaded =
      load_functions();  // a failure is retried at the next call
  return loaded;
}

// A plan as plain data for the module; its pointers point into the plan.
class Graph {
 public:
  Graph(const DaliPlan& plan, const DaliPlanOptions& plan_options,
        const DaliPipelineOptions& options) {
    const bool planar = plan_options.input_layout == Layout::kPlanar;
    if (plan_options.encoded) {
      inputs_.push_back({"images", kLockstepDaliUint8, 1, nullptr});
    } else {
      inputs_.push_back({"images", kLockstepDaliUint8, 3, planar ? "CHW" : "HWC"});
    }
    for (const DaliInput& input : plan.inputs()) {
      inputs_.push_back({input.name.c_str(),
                         input.is_integer ? kLockstepDaliInt32 : kLockstepDaliFloat32,
                         input.count == 1 ? 0 : 1, nullptr});
    }
    for (const DaliOperator& op : plan.operators()) {
      std::vector<lockstep_dali_argument>& arguments = arguments_.emplace_back();
      for (const auto& [name, value] : op.arguments) {
        arguments.push_back({.name = name.c_str()});
        std::visit([&](const auto& held) { describe(held, plan, arguments.back()); }, value);
      }
      operators_.push_back(
          {op.schema.c_str(), device(op, options.gpu), arguments.data(), arguments.size()});
    }
    graph_ = {.inputs = inputs_.data(),
              .input_count = inputs_.size(),
              .operators = operators_.data(),
              .operator_count = operators_.size(),
              .maximum_batch = static_cast<std::int32_t>(options.batch_size),
              .threads = options.threads,
              .prefetch = options.prefetch,
              .gpu = options.gpu};
  }
  const lockstep_dali_graph& operator*() const { return graph_; }

 private:
  static lockstep_dali_device device(const DaliOperator& op, int gpu) {
    if (gpu < 0) return kLockstepDaliCpu;
    return op.schema.starts_with("decoders__") ? kLockstepDaliMixed : kLockstepDaliGpu;
  }

  static void describe(bool value, const DaliPlan&, lockstep_dali_argument& argument) {
    argument.kind = kLockstepDaliFlag;
    argument.integer = value ? 1 : 0;
  }
  static void describe(std::int64_t value, const DaliPlan&, lockstep_dali_argument& argument) {
    argument.kind = kLockstepDaliInteger;
    argument.integer = value;
  }
  static void describe(const std::string& value, const DaliPlan&,
                       lockstep_dali_argument& argument) {
    argument.kind = kLockstepDaliText;
    argument.text = value.c_str();
  }
  static void describe(const std::vector<float>& values, const DaliPlan&,
                       lockstep_dali_argument& argument) {
    argument.kind = kLockstepDaliNumbers;
    argument.numbers = values.data();
    argument.count = values.size();
  }
  static void describe(const DaliFed& fed, const DaliPlan& plan, lockstep_dali_argument& argument) {
    argument.kind = kLockstepDaliFed;
    argument.text = plan.inputs()[static_cast<std::size_t>(fed.input)].name.c_str();
  }

  std::vector<lockstep_dali_input> inputs_;
  std::deque<std::vector<lockstep_dali_argument>> arguments_;
  std::vector<lockstep_dali_operator> operators_;
  lockstep_dali_graph graph_{};
};

template <class Failure, class Call>
void call(const char* what, const Call& function) {
  std::array<char, kErrorBytes> error{};
  if (function(error.data(), error.size()) != 0) throw Failure(str(what, error.data()));
}

}  // namespace

DaliPipeline::DaliPipeline(const DaliPlan& plan, const DaliPlanOptions& plan_options,
                           const DaliPipelineOptions& options)
    : functions_(functions()) {
  const Graph graph(plan, plan_options, options);
  call<ConfigError>("Loader: DALI cannot build the pipeline: ", [&](char* error, std::size_t size) {
    return functions_->create(&*graph, &pipeline_, error, size);
  });
  for (const DaliInput& input : plan.inputs()) counts_.push_back(input.count);
  feeds_.resize(counts_.size() + 1);
}

DaliPipeline::~DaliPipeline() {
  if (pipeline_ != nullptr) functions_->destroy(pipeline_);
}

void DaliPipeline::run(const DaliImages& images, const DaliNumbers& numbers) {
  feeds_[0] = {.data = nullptr, .samples = images.data.data(), .shapes = images.shapes.data()};
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    feeds_[i + 1] = {.data = numbers[i].data(), .samples = nullptr, .shapes = &counts_[i]};
  }
  call<DataError>("DALI refuses a batch: ", [&](char* error, std::size_t size) {
    return functions_->run(pipeline_, static_cast<std::int64_t>(images.data.size()), feeds_.data(),
                           error, size);
  });
}

DaliOutput DaliPipeline::pop() {
  lockstep_dali_output output{};
  call<DataError>("DALI: ", [&](char* error, std::size_t size) {
    return functions_->pop(pipeline_, &output, error, size);
  });
  return {functions_, output};
}

}  // namespace lockstep::data
