#include <lockstep/export/trace/rehearsal.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <set>

#include <ATen/TracerMode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/export/trace/aliasing.h>
#include <lockstep/export/trace/compare_recordings.h>
#include <lockstep/export/trace/sizes_without_data.h>
#include <lockstep/export/trace/stand_in.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Stack;
using torch::jit::Value;

// LibTorch calls the fallback of this key before any other kernel, the tracer's included, while a
// thread includes the key. LibTorch reserves it for modes outside of its own code.
constexpr c10::DispatchKey kModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Excluded for operations of the rehearsal's own, which are neither forward()'s nor to be traced.
constexpr c10::DispatchKeySet kUnseen({kModeKey, c10::DispatchKey::Tracer});

// Thrown through forward() at a difference from the trace.
class Divergence : public Error {
 public:
  enum class Kind { kWay, kRead, kSizes };

  explicit Divergence(const std::string& what, Kind which = Kind::kWay)
      : Error(what), kind(which) {}

  Kind kind;
};

constexpr std::int64_t kSmallBatches = 130;
constexpr std::int64_t kLargestPowerOfTwo = 65'536;
constexpr std::int64_t kLargestPowerOfTen = 1'000'000;

// A branch compares a size with a number that a person wrote: every small batch, and both sides of
// the powers of two and ten. Sizes of other branches lie in between, and the largest batch finds
// all that begin somewhere and do not end again.
std::vector<std::int64_t> batches_to_rehearse() {
  std::vector<std::int64_t> batches(kSmallBatches);
  std::iota(batches.begin(), batches.end(), 1);
  const auto add_powers = [&](std::int64_t power, std::int64_t largest, std::int64_t factor) {
    for (; power <= largest; power *= factor) {
      batches.insert(batches.end(), {power - 1, power, power + 1});
    }
  };
  add_powers(256, kLargestPowerOfTwo, 2);
  add_powers(1000, kLargestPowerOfTen, 10);
  return batches;
}

// Batches for which LibTorch's kernels without data (device meta) say the sizes of all results. The
// other rehearsals take them from the lines through the recorded batches, which a slice such as
// x[::10] follows only at first.
bool checks_sizes(std::int64_t batch) {
  return batch == kSmallBatches || batch == kLargestPowerOfTwo + 1 || batch == kLargestPowerOfTen;
}

// Whether the tracer records the operation `name` as `recorded`.
bool is_recorded_as(const std::string& name, const std::string& recorded) {
  return name == recorded || (name == "aten::detach_" && recorded == "aten::detach");
}

// Operations that the tracer does not record: their own operations are recorded instead.
bool is_never_recorded(const std::string& name) {
  static const std::set<std::string> kNames = {
      "aten::conv1d",           "aten::conv2d",           "aten::conv3d",
      "aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d",
      "aten::convolution",      "aten::lstm_cell",        "aten::gru_cell",
      "aten::rnn_tanh_cell",    "aten::rnn_relu_cell"};
  return kNames.contains(name);
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const auto& result) {
    return result.type()->isSubtypeOf(*c10::TensorType::get()) ||
           result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

// Whether an operation may return its first argument itself because there is nothing to do.
bool may_return_its_argument(const Call& call) {
  static const std::set<std::string> kNames = {
      "aten::contiguous", "aten::to",      "aten::type_as",  "aten::flatten",
      "aten::ravel",      "aten::movedim", "aten::moveaxis", "aten::positive",
      "aten::alias",      "aten::real",    "aten::conj",     "aten::resolve_conj"};
  if (!is_dropout(call.name)) return kNames.contains(call.name);
  const c10::IValue& is_training = call.arguments.at(2).constant;
  return is_training.isBool() && !is_training.toBool();
}

// Whether all tensors of one type are alike in the other: sizes, strides, type and device.
bool are_alike(const c10::TensorTypePtr& a, const c10::TensorTypePtr& b) {
  return a != nullptr && b != nullptr && a->sizes() == b->sizes() && a->strides() == b->strides() &&
         a->scalarType() == b->scalarType() && a->device() == b->device();
}

// Whether an optional argument is not given.
bool is_absent(const c10::IValue& value) {
  return value.isNone() || (value.isTensor() && !value.toTensor().defined());
}

// One run of forward() with stand-ins for one batch.
class Rehearsal {
 public:
  Rehearsal(const Trace& trace, std::int64_t batch) : trace_(trace), batch_(batch) {}

  void run(const Forward& forward, const NamedParameters& parameters) {
    const auto values = trace_.recording.graph->inputs();
    const std::size_t inputs = values.size() - parameters.size();
    Tensors given;
    for (std::size_t i = 0; i < inputs; ++i) {
      given.push_back(made(stand_in(values[i]), {.number = i}));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      known_[parameters[i].second.unsafeGetTensorImpl()] = {.origin = {.number = inputs + i}};
    }
    has_attention_ = std::ranges::any_of(parameters, [](const auto& parameter) {
      return parameter.first.ends_with("in_proj_weight") ||
             parameter.first.ends_with("q_proj_weight");
    });
    Tensors outputs;
    try {
      outputs = forward(given);
    } catch (...) {
      if (!difference_) throw;
    }
    // forward() may have caught these, and thrown another exception because of the difference.
    if (difference_) throw Divergence(*difference_);
    if (failure_) std::rethrow_exception(failure_);
    if (next_ < calls().size()) {
      throw Divergence(str("ends ", place(), ", before ", calls()[next_].name));
    }
    require_same_outputs(outputs);
  }

  // Called in place of each operation.
  void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack& stack) try {
    const std::string name = op.schema().name();
    if (values_decide_sizes(op, stack)) {
      throw Divergence(str("reads values out of a tensor as a size, by ", name, ", ", place()),
                       Divergence::Kind::kRead);
    }
    if (next_ < calls().size() && is_recorded_as(name, calls()[next_].name)) {
      return perform(op, next_++, stack);
    }
    if (is_read(name) && any_stand_in(op, stack)) return read(op, stack);
    if (returns_tensors(op.schema()) && !is_never_recorded(name)) {
      throw Divergence(str("takes a different path ", place(), ": it calls ", name, " where ",
                           next_ < calls().size() ? calls()[next_].name : "the end",
                           " was recorded"));
    }
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kModeKey),
                       &stack);
  } catch (const Divergence& difference) {
    if (!difference_) difference_.emplace(difference);
    throw;
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
    throw;
  }

  // "after fc (parameter fc.weight)"
  std::string place() const {
    for (std::size_t i = next_; i-- > 0;) {
      if (calls()[i].node == nullptr) continue;
      return ModuleLocation{.parameter = trace_.locations.at(calls()[i].node).parameter}.text();
    }
    return ModuleLocation().text();
  }

 private:
  struct Known {
    Origin origin{};
    bool is_stand_in = false;
  };

  const std::vector<Call>& calls() const { return trace_.recording.calls; }

  static bool is_read(const std::string& name) {
    return name == "aten::_local_scalar_dense" || name == "aten::equal";
  }

  // torch::nn::MultiheadAttention compares its arguments to save work, with the same result.
  void read(const c10::OperatorHandle& op, Stack& stack) const {
    if (op.schema().name() == "aten::equal") {
      const auto pair = torch::jit::last(stack, 2);
      const bool is_same = pair[0].toTensor().is_same(pair[1].toTensor());
      if (is_same || has_attention_) {
        torch::jit::drop(stack, 2);
        stack.emplace_back(is_same);
        return;
      }
    }
    throw Divergence(str("reads a value out of a tensor ", place()), Divergence::Kind::kRead);
  }

  std::int64_t size_at(const Extent& extent) const {
    return trace_.batch == 0 ? extent.size : extent.per_batch * batch_ + extent.offset;
  }

  at::Tensor stand_in(const c10::TensorTypePtr& type, const Extents& extents) const {
    std::vector<std::int64_t> sizes;
    for (const Extent& extent : extents) sizes.push_back(size_at(extent));
    return stand_in_for(*type, sizes);
  }

  at::Tensor stand_in(const Value* value) const {
    return stand_in(value->type()->expect<c10::TensorType>(), trace_.sizes.at(value));
  }

  // The stand-in for result `k` of call `i`; undefined if the result was undefined.
  at::Tensor stand_in(std::size_t i, std::size_t k) const {
    const Call& call = calls()[i];
    if (call.results[k] == nullptr || !call.results[k]->sizes().concrete_sizes()) return {};
    const auto& extents = trace_.sizes_of_calls[i][k];
    if (!extents) throw_other_sizes(call);
    return stand_in(call.results[k], *extents);
  }

  [[noreturn]] void throw_other_sizes(const Call& call, const std::string& which = "") const {
    throw Divergence(str("gets different sizes in the result of ", call.name, ' ', place(), which),
                     Divergence::Kind::kSizes);
  }

  bool follows_batch(std::size_t i) const {
    const auto follows = [](const std::optional<Extents>& extents) {
      return !extents ||
             std::ranges::any_of(*extents, [](const Extent& each) { return !each.is_static(); });
    };
    return std::ranges::any_of(trace_.sizes_of_calls[i], follows);
  }

  at::Tensor made(const at::Tensor& tensor, const Origin& origin, bool is_stand_in = true) {
    if (!tensor.defined()) return tensor;
    held_.emplace_back(tensor.getIntrusivePtr());
    known_[tensor.unsafeGetTensorImpl()] = {.origin = origin, .is_stand_in = is_stand_in};
    return tensor;
  }

  bool is_stand_in(const at::Tensor& tensor) const {
    const auto found = known_.find(tensor.unsafeGetTensorImpl());
    return found != known_.end() && found->second.is_stand_in;
  }

  bool any_stand_in(const c10::IValue& value) const {
    if (value.isTensor()) return is_stand_in(value.toTensor());
    if (!value.isList()) return false;
    return std::ranges::any_of(value.toListRef(),
                               [this](const c10::IValue& member) { return any_stand_in(member); });
  }

  bool any_stand_in(const c10::OperatorHandle& op, const Stack& stack) const {
    return std::ranges::any_of(torch::jit::last(stack, op.schema().arguments().size()),
                               [this](const c10::IValue& each) { return any_stand_in(each); });
  }

  void perform(const c10::OperatorHandle& op, std::size_t i, Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    require_same_arguments(calls()[i], torch::jit::last(stack, count));
    if (!any_stand_in(op, stack) && !follows_batch(i)) {
      compute(op, stack);
      keep_results(stack, i);
      return;
    }
    const Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
    torch::jit::drop(stack, count);
    if (trace_.batch != 0 && checks_sizes(batch_)) require_right_sizes(op, i, arguments);
    const auto& returns = op.schema().returns();
    const std::size_t results = calls()[i].results.size();
    if (returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType) {
      c10::List<at::Tensor> list;
      for (std::size_t k = 0; k < results; ++k) {
        list.push_back(made(stand_in(i, k), {.call = i, .number = k}));
      }
      stack.emplace_back(std::move(list));
      return;
    }
    for (std::size_t k = 0; k < results; ++k) {
      stack.emplace_back(made(result(op.schema(), i, k, arguments), {.call = i, .number = k}));
    }
  }

  void require_right_sizes(const c10::OperatorHandle& op, std::size_t i,
                           const Stack& arguments) const {
    const c10::impl::ExcludeDispatchKeyGuard plain(kUnseen);
    const auto sizes = sizes_without_data(op, arguments);
    for (std::size_t k = 0; sizes && k < std::min(sizes->size(), calls()[i].results.size()); ++k) {
      const at::Tensor expected = stand_in(i, k);
      if (!expected.defined() || expected.sizes() == (*sizes)[k]) continue;
      throw_other_sizes(calls()[i], str(", [", join((*sizes)[k]), "] where smaller batches imply [",
                                        join(expected.sizes()), "]"));
    }
  }

  // Whether the values of a stand-in decide the sizes of the results, which are then unknown.
  bool values_decide_sizes(const c10::OperatorHandle& op, const Stack& stack) const {
    const std::string& name = op.schema().name();
    const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
    if (name == "aten::repeat_interleave") {
      const bool has_tensor_first = op.schema().arguments()[0].name() == "repeats";
      return any_stand_in(arguments[has_tensor_first ? 0 : 1]);
    }
    if (name == "aten::where") return arguments.size() == 1 && any_stand_in(arguments[0]);
    if (name == "aten::index") return any_stand_in_mask(arguments[1]);
    if (name == "aten::masked_select") return any_stand_in(arguments[1]);
    if (name == "aten::one_hot" && arguments[1].toInt() >= 0) return false;
    const bool decide = op.hasTag(at::Tag::dynamic_output_shape) || name == "aten::nonzero_numpy" ||
                        name == "aten::to_sparse" || name == "aten::_to_sparse";
    return decide && any_stand_in(arguments[0]);
  }

  bool any_stand_in_mask(const c10::IValue& indices) const {
    return std::ranges::any_of(indices.toListRef(), [this](const c10::IValue& member) {
      if (!any_stand_in(member)) return false;
      const at::ScalarType type = member.toTensor().scalar_type();
      return type == at::kBool || type == at::kByte;
    });
  }

  // Calls the operation itself.
  static void compute(const c10::OperatorHandle& op, Stack& stack) {
    const c10::impl::ExcludeDispatchKeyGuard plain(kUnseen);
    op.callBoxed(stack);
  }

  // Remembers what call `i` has just computed.
  void keep_results(const Stack& stack, std::size_t i) {
    const std::size_t count = calls()[i].results.size();
    if (count == 0) return;
    if (stack.back().isTensorList()) {
      const auto members = stack.back().toTensorVector();
      for (std::size_t k = 0; k < std::min(members.size(), count); ++k) {
        made(members[k], {.call = i, .number = k}, /*is_stand_in=*/false);
      }
      return;
    }
    const auto results = torch::jit::last(stack, std::min(count, stack.size()));
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (!results[k].isTensor()) continue;
      made(results[k].toTensor(), {.call = i, .number = k}, /*is_stand_in=*/false);
    }
  }

  // An operation in place returns the argument that it writes to.
  at::Tensor result(const c10::FunctionSchema& schema, std::size_t i, std::size_t k,
                    const Stack& arguments) const {
    const at::Tensor wanted = stand_in(i, k);
    if (k >= schema.returns().size()) return wanted;
    const c10::AliasInfo* const alias = schema.returns()[k].alias_info();
    for (std::size_t a = 0; alias != nullptr && alias->isWrite() && a < arguments.size(); ++a) {
      const c10::AliasInfo* const written = schema.arguments()[a].alias_info();
      if (written == nullptr || !(*written == *alias)) continue;
      const at::Tensor self = arguments[a].toTensor();
      if (self.sizes() != wanted.sizes()) {
        self.unsafeGetTensorImpl()->set_sizes_and_strides(wanted.sizes(), wanted.strides());
      }
      return self;
    }
    return wanted;
  }

  void require_same_arguments(const Call& call, c10::ArrayRef<c10::IValue> arguments) const {
    if (arguments.size() != call.arguments.size()) {
      if (!call.has_schema) return;  // a form of its own in the trace
      throw Divergence(str("calls another form of ", call.name, ' ', place()));
    }
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!is_same(arguments[i], call.arguments[i])) {
        throw Divergence(str("gives ", call.name, " another argument ", i, ' ', place(), ", ",
                             in_words(arguments[i]), " where the trace has ",
                             in_words(call.arguments[i])));
      }
    }
  }

  static std::string in_words(const c10::IValue& value) {
    if (is_absent(value)) return "none";
    if (value.isTensor()) return str("a tensor [", join(value.toTensor().sizes()), "]");
    if (value.isTensorList()) return "a list of tensors";
    return lockstep::str(value);
  }

  std::string in_words(const Argument& argument) const {
    if (argument.origin) return "another tensor";
    if (argument.extent) return lockstep::str(size_at(*argument.extent));
    if (!argument.is_list) return in_words(argument.constant);
    std::vector<std::string> members;
    for (const Argument& each : argument.members) members.push_back(in_words(each));
    return "[" + join(members) + "]";
  }

  bool is_same(const c10::IValue& given, const Argument& expected) const {
    if (expected.varies) return true;
    if (expected.is_list) {
      if (!given.isList()) return false;
      const auto list = given.toListRef();
      return std::equal(list.begin(), list.end(), expected.members.begin(), expected.members.end(),
                        [this](const c10::IValue& a, const Argument& b) { return is_same(a, b); });
    }
    if (given.isTensor() && given.toTensor().defined()) {
      return is_same_tensor(given.toTensor(), expected);
    }
    if (expected.origin) return false;
    if (expected.extent) return given.isInt() && given.toInt() == size_at(*expected.extent);
    if (is_absent(given) || is_absent(expected.constant)) {
      return is_absent(given) && is_absent(expected.constant);
    }
    return same_constant(given, expected.constant);
  }

  bool is_same_tensor(const at::Tensor& given, const Argument& expected) const {
    const auto found = known_.find(given.unsafeGetTensorImpl());
    if (expected.origin) {
      return found != known_.end() &&
             source_of(found->second.origin) == source_of(*expected.origin);
    }
    if (is_stand_in(given) || !expected.constant.isTensor()) return false;
    const c10::impl::ExcludeDispatchKeyGuard plain(kUnseen);
    return same_tensor(given, expected.constant.toTensor());
  }

  // An operation may have returned its argument itself. The tracer then uses the name of the result
  // for the argument, too.
  Origin source_of(Origin origin) const {
    while (origin.call != Origin::kInput && may_return_its_argument(calls()[origin.call])) {
      const std::optional<Origin>& argument = calls()[origin.call].arguments.at(0).origin;
      if (!argument || !are_alike(type_of(origin), type_of(*argument))) break;
      origin = *argument;
    }
    return origin;
  }

  c10::TensorTypePtr type_of(const Origin& origin) const {
    if (origin.call != Origin::kInput) return calls()[origin.call].results[origin.number];
    return trace_.recording.graph->inputs()[origin.number]->type()->cast<c10::TensorType>();
  }

  void require_same_outputs(const Tensors& outputs) const {
    const std::vector<Argument>& expected = trace_.recording.output_origins;
    if (outputs.size() != expected.size()) {
      throw Divergence(
          str("returns ", outputs.size(), " tensors where ", expected.size(), " were recorded"));
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!expected[i].varies && !is_same_tensor(outputs[i], expected[i])) {
        throw Divergence(str("returns another tensor as output ", i));
      }
    }
  }

  const Trace& trace_;
  const std::int64_t batch_;
  std::size_t next_ = 0;  // among the recorded calls
  bool has_attention_ = false;
  std::optional<Divergence> difference_;  // the first one
  std::exception_ptr failure_;            // the first other exception of an operation
  std::unordered_map<const c10::TensorImpl*, Known> known_;
  // Weakly held, so that no other tensor reuses their identities, and LibTorch's factories do not
  // copy what has a second owner.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> held_;
};

// LibTorch's fallbacks are plain functions.
thread_local Rehearsal* current_rehearsal = nullptr;

void on_any_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  // LibTorch hides some operations from the tracer, such as those of torch::tensor().
  const bool is_hidden = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Tracer);
  if (current_rehearsal != nullptr && !is_hidden) {
    return current_rehearsal->on_call(op, keys, *stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard plain(kModeKey);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kModeKey), stack);
}

// While it lives, the operations of this thread go to `rehearsal`, and forward() sees that it is
// being traced.
class Stage {
 public:
  explicit Stage(Rehearsal& rehearsal) : mode_(kModeKey) {
    static const auto registration = c10::Dispatcher::singleton().registerFallback(
        kModeKey, c10::KernelFunction::makeFromBoxedFunction<&on_any_call>(), "lockstep export");
    current_rehearsal = &rehearsal;
    torch::jit::tracer::setTracingState(std::make_shared<torch::jit::tracer::TracingState>());
  }
  ~Stage() {
    torch::jit::tracer::setTracingState(nullptr);
    current_rehearsal = nullptr;
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  const c10::impl::IncludeDispatchKeyGuard mode_;
};

bool is_access_to_memory(const std::exception& error) {
  const std::string text = error.what();
  return text.find("data pointer") != std::string::npos ||
         text.find("storage") != std::string::npos;
}

const char* advice_for(const Divergence& difference, bool follows_batch) {
  if (difference.kind == Divergence::Kind::kRead) {
    return ", and a trace cannot see what depends on it: use torch::where() and operations of "
           "fixed sizes, or set allow_reads";
  }
  if (difference.kind == Divergence::Kind::kSizes) {
    return ": each size must be a multiple of the batch plus a constant; use other operations, or "
           "export with dynamic_batch = false";
  }
  if (!follows_batch)
    return ": a recorded graph has a single path; forward() must behave the same in every call";
  return ": an exported graph has a single path for all batches; compute the condition with "
         "torch::where() or the like, or export with dynamic_batch = false";
}

// Whether forward() ended; it does not if it accesses memory although that is allowed.
bool rehearse_batch(const Forward& forward, const NamedParameters& parameters, const Trace& trace,
                    std::int64_t batch, bool allow_reads) {
  Rehearsal rehearsal(trace, batch);
  const bool follows_batch = trace.batch != 0;
  const std::string with = follows_batch ? str("a batch of ", batch) : "the example's sizes";
  try {
    const Stage stage(rehearsal);
    rehearsal.run(forward, parameters);
    return true;
  } catch (const Divergence& difference) {
    if (allow_reads && difference.kind == Divergence::Kind::kRead) return false;
    throw ConfigError(str("export_onnx: with ", with, ", forward() ", difference.what(),
                          advice_for(difference, follows_batch)));
  } catch (const std::exception& error) {
    if (!is_access_to_memory(error)) {
      throw ConfigError(str("export_onnx: forward() fails with ", with, ' ', rehearsal.place(),
                            ": ", first_line(error), follows_batch ? kForSomeBatches : ""));
    }
    if (allow_reads) return false;
    throw ConfigError(
        str("export_onnx: forward() accesses the memory of a tensor (data_ptr() or accessor) ",
            rehearsal.place(),
            ", and a trace cannot see what depends on it: use LibTorch's operations, or set "
            "allow_reads"));
  }
}

}  // namespace

void rehearse(const Forward& forward, const NamedParameters& parameters, const Trace& trace,
              bool allow_reads) {
  const at::NoGradGuard no_grad;
  if (!rehearse_batch(forward, parameters, trace, trace.batch, allow_reads)) return;
  if (trace.batch == 0) return;
  for (const std::int64_t batch : batches_to_rehearse()) {
    if (!rehearse_batch(forward, parameters, trace, batch, allow_reads)) return;
  }
}

}  // namespace lockstep::onnx
