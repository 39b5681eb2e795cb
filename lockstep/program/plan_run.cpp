#include <ATen/autocast_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/program/instruction.h>

namespace lockstep::program {
namespace {

using c10::IValue;
using Frame = std::vector<IValue>;

IValue value_of(const Operand& operand, Frame& frame, const Modules& modules) {
  using Kind = Operand::Kind;
  switch (operand.kind) {
    case Kind::kConstant:
      return operand.constant;
    case Kind::kRegister: {
      IValue& held = frame[static_cast<std::size_t>(operand.index)];
      if (operand.as_float && held.isInt()) return static_cast<double>(held.toInt());
      if (operand.as_tensor && held.isScalar()) return wrapped_number(held);
      return operand.is_last ? std::move(held) : held;
    }
    case Kind::kList: {
      c10::impl::GenericList list(operand.list_type);
      list.reserve(operand.items.size());
      for (const Operand& item : operand.items) list.push_back(value_of(item, frame, modules));
      return list;
    }
    case Kind::kTraining:
      return modules[static_cast<std::size_t>(operand.module)]->is_training();
    case Kind::kProbability:
      return modules[static_cast<std::size_t>(operand.module)]->is_training() ? operand.constant
                                                                              : IValue(0.0);
  }
  return {};
}

void push_values(const std::vector<Operand>& operands, std::size_t first, Frame& frame,
                 const Modules& modules, std::vector<IValue>& values) {
  values.reserve(operands.size());
  for (std::size_t i = first; i < operands.size(); ++i) {
    values.push_back(value_of(operands[i], frame, modules));
  }
}

std::vector<IValue> values_of(const std::vector<Operand>& operands, std::size_t first, Frame& frame,
                              const Modules& modules) {
  std::vector<IValue> values;
  push_values(operands, first, frame, modules, values);
  return values;
}

// The arguments of a graph whose gradients Python computes apart: the gradient of each is summed
// within the graph before it is added to that of other uses.
std::vector<IValue> apart(std::vector<IValue> values) {
  for (IValue& value : values) {
    if (value.isTensor() && value.toTensor().requires_grad()) {
      value = value.toTensor().alias();
    }
  }
  return values;
}

bool truth(const IValue& value) {
  return value.isTensor() ? value.toTensor().item<bool>() : value.toBool();
}

// The modes of torch.autocast(device, type, on), while it lives. Whether weights are cast once per
// scope is not read from the file: torch.export turns that off while it traces, and writes this.
class AutocastScope {
 public:
  AutocastScope(const IValue& device, const IValue& type, bool on)
      : device_(c10::Device(device.toStringRef()).type()),
        was_on_(at::autocast::is_autocast_enabled(device_)),
        type_(at::autocast::get_autocast_dtype(device_)) {
    at::autocast::set_autocast_enabled(device_, on);
    if (!type.isNone()) {
      at::autocast::set_autocast_dtype(device_, static_cast<c10::ScalarType>(type.toInt()));
    }
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_on_);
    at::autocast::set_autocast_dtype(device_, type_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  bool was_on_;
  c10::ScalarType type_;
};

// Runs graphs[1] on the carried values while graphs[0] is true of them.
std::vector<IValue> run_while(const Plan::Instruction& loop, std::vector<IValue> values,
                              const Modules& modules) {
  while (truth(loop.graphs[0]->run(values, modules).at(0))) {
    auto next = loop.graphs[1]->run(values, modules);
    LOCKSTEP_CHECK(next.size() == loop.carried, "a loop returned ", next.size(), " values");
    std::move(next.begin(), next.end(), values.begin());
  }
  values.resize(loop.carried);
  return values;
}

// Runs graphs[0] on the carried values and each row of the lists; stacks what it returns besides
// the carried values.
std::vector<IValue> run_scan(const Plan::Instruction& loop, const std::vector<IValue>& values,
                             const Modules& modules) {
  std::vector<IValue> carried(values.begin(), values.begin() + loop.carried);
  const std::int64_t rows = loop.rows == 0 ? 0 : values.at(loop.carried).toTensor().size(0);
  std::vector<std::vector<torch::Tensor>> results;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::vector<IValue> arguments = carried;
    const std::int64_t row = loop.is_reversed ? rows - 1 - i : i;
    for (std::size_t j = 0; j < loop.rows; ++j) {
      arguments.emplace_back(values[loop.carried + j].toTensor().select(0, row));
    }
    arguments.insert(arguments.end(), values.begin() + loop.carried + loop.rows, values.end());
    auto made = loop.graphs[0]->run(std::move(arguments), modules);
    std::move(made.begin(), made.begin() + loop.carried, carried.begin());
    results.resize(made.size() - loop.carried);
    for (std::size_t j = 0; j < results.size(); ++j) {
      results[j].push_back(made[loop.carried + j].toTensor());
    }
  }
  for (auto& tensors : results) {
    if (loop.is_reversed) std::reverse(tensors.begin(), tensors.end());
    carried.emplace_back(at::stack(tensors));
  }
  return carried;
}

// Notes the line of Python in the nodes of LibTorch's tracer that made `values`, so that the ONNX
// export can name it.
void note_source(const std::string& line, const std::vector<IValue>& values) {
  const auto& state = torch::jit::tracer::getTracingState();
  if (state == nullptr || line.empty()) return;
  const auto source = std::make_shared<torch::jit::Source>(line);
  const auto note = [&](const torch::Tensor& tensor) {
    if (!tensor.defined() || !state->hasValue(tensor)) return;
    torch::jit::Node* node = state->getValue(tensor)->node();
    // The members of a list come from a node of their own.
    if (node->kind() == c10::prim::ListUnpack) node = node->input()->node();
    node->setSourceRange(torch::jit::SourceRange(source, 0, line.size()));
  };
  for (const IValue& value : values) {
    if (value.isTensor()) note(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const torch::Tensor& tensor : value.toTensorVector()) note(tensor);
  }
}

void keep(IValue&& value, int index, Frame& frame) {
  if (index >= 0) frame[static_cast<std::size_t>(index)] = std::move(value);
}

// Stores what an operator returned. A list is spread over the registers of its items.
void keep_results(const std::vector<Plan::Instruction::Result>& results,
                  std::vector<IValue>& values, Frame& frame) {
  const std::size_t count = std::min(results.size(), values.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& registers = results[i].registers;
    if (!results[i].is_list) {
      keep(std::move(values[i]), registers.front(), frame);
      continue;
    }
    auto list = std::move(values[i]).toList();
    if (list.size() != registers.size()) {
      throw ConfigError(str("the operator returned a list of ", list.size(),
                            " values, but the model was exported with ", registers.size()));
    }
    for (std::size_t j = 0; j < registers.size(); ++j) {
      keep(IValue(list.get(j)), registers[j], frame);
    }
  }
}

// A higher-order operator returns its values one by one, and a node may name them as one list.
void keep_flat_results(const std::vector<Plan::Instruction::Result>& results,
                       std::vector<IValue>& values, Frame& frame) {
  std::size_t next = 0;
  for (const auto& result : results) {
    for (const int index : result.registers) {
      LOCKSTEP_CHECK(next < values.size(), "a graph returned ", values.size(), " values");
      keep(std::move(values[next++]), index, frame);
    }
  }
}

void note(const Plan::Instruction& instruction, double seconds, const Frame& frame,
          NodeRecord& record) {
  const std::size_t nodes = instruction.node + 1;
  record.seconds.resize(std::max(record.seconds.size(), nodes));
  record.sizes.resize(std::max(record.sizes.size(), nodes));
  record.seconds[instruction.node] += seconds;
  auto& sizes = record.sizes[instruction.node];
  for (const auto& result : instruction.results) {
    for (const int index : result.registers) {
      auto& added = sizes.emplace_back();
      if (index < 0) continue;
      const IValue& value = frame[static_cast<std::size_t>(index)];
      if (value.isTensor() && value.toTensor().defined()) added = value.toTensor().sizes().vec();
    }
  }
}

}  // namespace

IValue wrapped_number(const IValue& value) {
  const c10::Scalar number = value.toScalar();
  torch::Tensor tensor = at::scalar_tensor(number, at::device(at::kCPU).dtype(number.type()));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

void Plan::execute(const Instruction& instruction, Frame& frame, const Modules& modules,
                   torch::jit::Stack& stack) const {
  using Kind = Instruction::Kind;
  const auto& operands = instruction.operands;
  std::vector<IValue> values;
  switch (instruction.kind) {
    case Kind::kOperator: {
      push_values(operands, 0, frame, modules, stack);
      const int counted = instruction.only_in_training_of;
      if (counted >= 0 && !modules[static_cast<std::size_t>(counted)]->is_training()) {
        stack.resize(1);
      } else if (instruction.in_place && instruction.in_place->prepare(stack)) {
        instruction.in_place->operation.callBoxed(stack);
      } else {
        instruction.operation.front().callBoxed(stack);
        note_source(instruction.source, stack);
      }
      keep_results(instruction.results, stack, frame);
      stack.clear();
      return;
    }
    case Kind::kPython:
      push_values(operands, 0, frame, modules, stack);
      keep(instruction.python(stack), instruction.results.at(0).registers.at(0), frame);
      stack.clear();
      return;
    case Kind::kSize:
      push_values(operands, 0, frame, modules, stack);
      keep(stack[0].toTensor().size(stack[1].toInt()), instruction.results.at(0).registers.at(0),
           frame);
      stack.clear();
      return;
    case Kind::kGradMode: {
      values = values_of(operands, 0, frame, modules);
      const torch::AutoGradMode mode(values[0].toBool());
      values.erase(values.begin());
      values = instruction.graphs[0]->run(std::move(values), modules);
      break;
    }
    case Kind::kAutocast: {
      values = values_of(operands, 0, frame, modules);
      const AutocastScope scope(values[0], values[1], values[2].toBool());
      values.erase(values.begin(), values.begin() + 4);
      values = instruction.graphs[0]->run(std::move(values), modules);
      break;
    }
    case Kind::kInline:
      values = instruction.graphs[0]->run(values_of(operands, 0, frame, modules), modules);
      break;
    case Kind::kCond: {
      const bool first = truth(value_of(operands.front(), frame, modules));
      values = apart(values_of(operands, 1, frame, modules));
      values = instruction.graphs[first ? 0 : 1]->run(std::move(values), modules);
      break;
    }
    case Kind::kWhile:
      values = run_while(instruction, apart(values_of(operands, 0, frame, modules)), modules);
      break;
    case Kind::kBypass:
      return;  // run() decides
    case Kind::kScan:
      values = run_scan(instruction, apart(values_of(operands, 0, frame, modules)), modules);
      break;
  }
  keep_flat_results(instruction.results, values, frame);
}

std::vector<IValue> Plan::run(std::vector<IValue> inputs, const Modules& modules,
                              NodeRecord* record) const {
  LOCKSTEP_CHECK(inputs.size() == inputs_.size(), "a graph of ", inputs_.size(), " inputs got ",
                 inputs.size());
  Frame frame(registers_);
  for (std::size_t i = 0; i < inputs.size(); ++i) keep(std::move(inputs[i]), inputs_[i], frame);
  inputs.clear();
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& instruction = instructions_[i];
    if (instruction.kind == Instruction::Kind::kBypass) {
      if (modules[static_cast<std::size_t>(instruction.module)]->is_training()) continue;
      IValue value = value_of(instruction.operands.front(), frame, modules);
      for (const int index : instruction.released) frame[static_cast<std::size_t>(index)] = {};
      keep(std::move(value), instruction.results.front().registers.front(), frame);
      i += instruction.bypassed;
      continue;
    }
    try {
      if (record == nullptr) {
        execute(instruction, frame, modules, stack);
      } else {
        const auto begin = Clock::now();
        execute(instruction, frame, modules, stack);
        note(instruction, seconds_since(begin), frame, *record);
      }
    } catch (const Error&) {
      throw;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception& error) {
      throw ConfigError(str(name_, ": ", instruction.where, ": ", first_line(error)));
    }
  }
  std::vector<IValue> results;
  results.reserve(outputs_.size());
  for (const Output& output : outputs_) results.push_back(value_of(output.operand, frame, modules));
  return results;
}

}  // namespace lockstep::program
