// The module itself; see module.h.
#include <lockstep/data/augment/dali/module.h>

#include <dali/dali.h>
#include <dali/dali_cpp_wrappers.h>

#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::data {
namespace {

using dali::c_api::PipelineHandle;
using dali::c_api::PipelineOutputsHandle;
using dali::c_api::TensorHandle;
using dali::c_api::TensorListHandle;

void check(daliResult_t result) {
  if (result != DALI_SUCCESS) throw std::runtime_error(daliGetLastErrorMessage());
}

daliDataType_t data_type(lockstep_dali_type type) {
  switch (type) {
    case kLockstepDaliUint8:
      return DALI_UINT8;
    case kLockstepDaliInt32:
      return DALI_INT32;
    case kLockstepDaliFloat32:
      return DALI_FLOAT;
    case kLockstepDaliFloat16:
      return DALI_FLOAT16;
  }
  return DALI_NO_TYPE;
}

daliArgDesc_t describe(const lockstep_dali_argument& argument) {
  daliArgDesc_t description{};
  description.name = argument.name;
  switch (argument.kind) {
    case kLockstepDaliFlag:
      description.dtype = DALI_BOOL;
      description.ivalue = argument.integer;
      break;
    case kLockstepDaliInteger:
      description.dtype = DALI_INT64;
      description.ivalue = argument.integer;
      break;
    case kLockstepDaliText:
      description.dtype = DALI_STRING;
      description.str = argument.text;
      break;
    case kLockstepDaliNumbers:
      description.dtype = DALI_FLOAT_VEC;
      description.size = static_cast<std::int64_t>(argument.count);
      description.arr = argument.numbers;
      break;
    case kLockstepDaliFed:
      throw std::logic_error("a fed argument has no value");
  }
  return description;
}

// DALI's texts have several lines. The lines from the stack trace on do not help a user.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text.substr(0, text.find("Stacktrace"))) {
    const bool space = c == '\n' || c == ' ';
    if (!space) line += c;
    if (space && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

class Pipeline {
 public:
  explicit Pipeline(const lockstep_dali_graph& graph)
      : on_gpu_(graph.gpu >= 0), inputs_(graph.inputs, graph.inputs + graph.input_count) {
    for (const lockstep_dali_input& input : inputs_) {
      names_.emplace_back(input.name);
      layouts_.emplace_back(input.layout == nullptr ? "" : input.layout);
    }
    create(graph);
    for (std::size_t i = 0; i < inputs_.size(); ++i) add_input(i);
    std::string last = names_.at(0);
    bool last_on_gpu = false;
    for (std::size_t i = 0; i < graph.operator_count; ++i) {
      const lockstep_dali_operator& op = graph.operators[i];
      std::string made = "made" + std::to_string(i);
      add_operator(op, last.c_str(), last_on_gpu, made.c_str());
      last_on_gpu = op.device != kLockstepDaliCpu;
      last = std::move(made);
    }
    daliPipelineIODesc_t output{};
    output.name = last.c_str();
    output.device = on_gpu_ ? DALI_STORAGE_GPU : DALI_STORAGE_CPU;
    check(daliPipelineSetOutputs(pipeline_, 1, &output));
    check(daliPipelineBuild(pipeline_));
  }

  void run(int count, const lockstep_dali_feed* feeds) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) feed(i, count, feeds[i]);
    check(daliPipelineRun(pipeline_));
  }

  // Copies the outputs and releases them at once: releasing is a call of the pipeline, which may
  // fail later. The tensor owns its memory.
  lockstep_dali_output pop() {
    daliPipelineOutputs_h popped = nullptr;
    check(daliPipelinePopOutputs(pipeline_, &popped));
    const PipelineOutputsHandle outputs(popped);
    daliTensorList_h got = nullptr;
    check(daliPipelineOutputsGet(outputs, &got, 0));
    const TensorListHandle list(got);
    daliTensor_h viewed = nullptr;
    check(daliTensorListViewAsTensor(list, &viewed));
    TensorHandle tensor(viewed);
    daliTensorDesc_t description{};
    check(daliTensorGetDesc(tensor, &description));
    lockstep_dali_output output{};
    check(daliTensorGetByteSize(tensor, &output.bytes));
    output.data = description.data;
    output.handle = tensor.release();
    return output;
  }

 private:
  void create(const lockstep_dali_graph& graph) {
    daliPipelineParams_t params{};
    DALI_SET_PARAM(params, max_batch_size, graph.maximum_batch);
    DALI_SET_PARAM(params, num_threads, graph.threads);
    if (on_gpu_) DALI_SET_PARAM(params, device_id, graph.gpu);
    DALI_SET_PARAM(params, exec_type, DALI_EXEC_DYNAMIC);
    const daliPrefetchQueueSizes_t depths{graph.prefetch, graph.prefetch};
    DALI_SET_PARAM(params, prefetch_queue_depths, depths);
    daliPipeline_h created = nullptr;
    check(daliPipelineCreate(&created, &params));
    pipeline_ = PipelineHandle(created);
  }

  void add_input(std::size_t i) {
    daliPipelineIODesc_t description{};
    description.name = names_[i].c_str();
    description.device = DALI_STORAGE_CPU;
    description.dtype_present = 1;
    description.dtype = data_type(inputs_[i].type);
    description.ndim_present = 1;
    description.ndim = inputs_[i].dimensions;
    description.layout = layouts_[i].c_str();
    check(daliPipelineAddExternalInput(pipeline_, &description));
  }

  void add_operator(const lockstep_dali_operator& op, const char* from, bool from_gpu,
                    const char* to) {
    std::vector<daliArgDesc_t> values;
    std::vector<daliArgInputDesc_t> fed;
    for (const auto& argument : std::span(op.arguments, op.argument_count)) {
      if (argument.kind == kLockstepDaliFed) {
        fed.push_back({argument.name, argument.text});
      } else {
        values.push_back(describe(argument));
      }
    }
    // DALI copies the input of a GPU operator that follows a CPU operator.
    const bool takes_gpu = from_gpu || op.device == kLockstepDaliGpu;
    const daliIODesc_t input{from, takes_gpu ? DALI_STORAGE_GPU : DALI_STORAGE_CPU};
    const bool makes_gpu = op.device != kLockstepDaliCpu;
    const daliIODesc_t output{to, makes_gpu ? DALI_STORAGE_GPU : DALI_STORAGE_CPU};
    daliOperatorDesc_t description{};
    description.schema_name = op.schema;
    description.backend = op.device == kLockstepDaliCpu   ? DALI_BACKEND_CPU
                          : op.device == kLockstepDaliGpu ? DALI_BACKEND_GPU
                                                          : DALI_BACKEND_MIXED;
    description.num_inputs = 1;
    description.inputs = &input;
    description.num_outputs = 1;
    description.outputs = &output;
    description.num_args = static_cast<int>(values.size());
    description.args = values.data();
    description.num_arg_inputs = static_cast<int>(fed.size());
    description.arg_inputs = fed.data();
    check(daliPipelineAddOperator(pipeline_, &description));
  }

  void feed(std::size_t i, int count, const lockstep_dali_feed& batch) {
    const int dimensions = inputs_[i].dimensions;
    const daliDataType_t type = data_type(inputs_[i].type);
    const char* layout = layouts_[i].c_str();
    daliTensorList_h created = nullptr;
    check(daliTensorListCreate(&created, {DALI_STORAGE_CPU, 0, false}));
    const TensorListHandle list(created);
    if (batch.data != nullptr) {
      shapes_.clear();
      for (int n = 0; n < count; ++n) {
        shapes_.insert(shapes_.end(), batch.shapes, batch.shapes + dimensions);
      }
      check(daliTensorListAttachBuffer(list, count, dimensions, shapes_.data(), type, layout,
                                       const_cast<void*>(batch.data), nullptr, {}));
    } else {
      samples_.resize(static_cast<std::size_t>(count));
      for (int n = 0; n < count; ++n) {
        samples_[static_cast<std::size_t>(n)] = {dimensions, batch.shapes + n * dimensions, type,
                                                 layout, const_cast<void*>(batch.samples[n])};
      }
      check(daliTensorListAttachSamples(list, count, dimensions, type, layout, samples_.data(),
                                        nullptr));
    }
    check(daliPipelineFeedInput(pipeline_, names_[i].c_str(), list, nullptr,
                                DALI_FEED_INPUT_NO_COPY, nullptr));
  }

  bool on_gpu_;
  std::vector<lockstep_dali_input> inputs_;  // their texts are in the next two
  std::vector<std::string> names_;
  std::vector<std::string> layouts_;
  std::vector<std::int64_t> shapes_;
  std::vector<daliTensorDesc_t> samples_;
  PipelineHandle pipeline_;
};

// Runs `work` and converts an exception to a text, because no exception may cross the border.
template <class Work>
int guarded(char* error, std::size_t error_size, const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& exception) {
    std::snprintf(error, error_size, "%s", one_line(exception.what()).c_str());
    return 1;
  }
}

int create(const lockstep_dali_graph* graph, void** pipeline, char* error, std::size_t error_size) {
  return guarded(error, error_size, [&] {
    check(daliInit());
    *pipeline = new Pipeline(*graph);
  });
}

int run(void* pipeline, std::int64_t count, const lockstep_dali_feed* feeds, char* error,
        std::size_t error_size) {
  return guarded(error, error_size,
                 [&] { static_cast<Pipeline*>(pipeline)->run(static_cast<int>(count), feeds); });
}

int pop(void* pipeline, lockstep_dali_output* output, char* error, std::size_t error_size) {
  return guarded(error, error_size, [&] { *output = static_cast<Pipeline*>(pipeline)->pop(); });
}

void release(void* handle) { daliTensorDecRef(static_cast<daliTensor_h>(handle), nullptr); }

void destroy(void* pipeline) { delete static_cast<Pipeline*>(pipeline); }

constexpr lockstep_dali_functions_v1 kFunctions = {create, run, pop, release, destroy};

}  // namespace
}  // namespace lockstep::data

extern "C" [[gnu::visibility("default")]] const lockstep_dali_functions_v1*
lockstep_dali_entry_v1() {
  return &lockstep::data::kFunctions;
}
