#include <lockstep/parallel/pipeline/random_scope.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>

namespace lockstep::pipeline {
namespace {

// A separate mutex, because every operation that draws locks the generator's own. The index is
// required because two names of one device, such as "cuda" and "cuda:0", would get two mutexes.
std::mutex& turn_of(torch::Device device) {
  LOCKSTEP_CHECK(device.is_cpu() || device.has_index(), device, ": the device has no index");
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceType, int>, std::mutex> turns;
  const std::scoped_lock lock(mutex);
  return turns[{device.type(), device.is_cpu() ? 0 : device.index()}];
}

at::Generator default_generator(torch::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator()
                         : at::globalContext().defaultGenerator(device);
}

bool is_generator_type(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    return optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
  }
  return type->kind() == c10::TypeKind::GeneratorType;
}

// Whether the kernel of an operator may draw random numbers. LibTorch's tag is missing on some,
// such as random_(), which take a generator. A composite operator, such as dropout(), only calls
// others.
bool may_draw(const c10::OperatorName& name) {
  const auto op = c10::Dispatcher::singleton().findOp(name);
  if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return false;
  const auto& arguments = op->schema().arguments();
  return op->hasTag(at::Tag::nondeterministic_seeded) ||
         std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
           return is_generator_type(argument.real_type());
         });
}

// The address of an operator's name, which is that of its schema, is the key: this runs before
// every operator, and a copy of the name would take longer than many of them.
bool may_draw_cached(const at::RecordFunction& function) {
  thread_local std::unordered_map<const char*, bool> known;
  const char* const key = function.name();
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto name = function.operator_name();
  return name && known.emplace(key, may_draw(*name)).first->second;
}

// The device whose default generator an operator with these arguments draws from; nullopt if it
// gets a generator of its own.
std::optional<torch::Device> device_of_draw(c10::ArrayRef<const c10::IValue> arguments) {
  std::optional<torch::Device> named_device, tensor_device;
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().defined()) {
      const at::Generator generator = argument.toGenerator();
      const bool is_default = generator == default_generator(generator.device());
      return is_default ? std::optional(generator.device()) : std::nullopt;
    }
    if (argument.isDevice() && !named_device) named_device = argument.toDevice();
    if (argument.isTensor() && argument.toTensor().defined() && !tensor_device) {
      tensor_device = argument.toTensor().device();
    }
  }
  return named_device ? named_device : tensor_device.value_or(torch::kCPU);
}

// LibTorch's callbacks are plain functions.
thread_local RandomScope* current_random_scope = nullptr;

}  // namespace

class RandomScope::Turn {
 public:
  Turn(torch::Device device, std::uint64_t seed)
      : is_cpu_(device.is_cpu()), generator_(default_generator(device)), turn_(turn_of(device)) {
    const std::scoped_lock lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(seed);
    seeded_ = generator_.get_state();
  }
  ~Turn() {
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_state(before_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool drawn() {
    const std::scoped_lock lock(generator_.mutex());
    return !generator_.get_state().equal(seeded_);
  }
  bool is_cpu() const { return is_cpu_; }

 private:
  const bool is_cpu_;
  at::Generator generator_;
  const std::unique_lock<std::mutex> turn_;
  torch::Tensor before_;
  torch::Tensor seeded_;
};

std::uint64_t micro_batch_seed(std::uint64_t step_seed, int stage, int micro_batch) {
  const auto bits = philox4x32(
      {static_cast<std::uint32_t>(stage), static_cast<std::uint32_t>(micro_batch), 0, 0},
      {static_cast<std::uint32_t>(step_seed), static_cast<std::uint32_t>(step_seed >> 32)});
  return (std::uint64_t{bits[1]} << 32) | bits[0];
}

// All scopes lock the CPU's generator first; otherwise two of them could deadlock.
RandomScope::RandomScope(torch::Device device, Generators at_once, std::uint64_t seed)
    : device_(device), seed_(seed) {
  if (at_once.cpu) take(torch::kCPU);
  if (at_once.device && !device.is_cpu()) take(device);
  if (has(torch::kCPU) && has(device)) return;
  current_random_scope = this;
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(before_operator)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
}

RandomScope::~RandomScope() {
  if (callback_ == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(callback_);
  current_random_scope = nullptr;
}

std::unique_ptr<at::ObserverContext> RandomScope::before_operator(
    const at::RecordFunction& function) {
  RandomScope* const scope = current_random_scope;
  if (scope == nullptr || !may_draw_cached(function)) return nullptr;
  const auto device = device_of_draw(function.inputs());
  if (!device || scope->has(*device)) return nullptr;
  const bool is_own = *device == scope->device_ ||
                      (device->type() == scope->device_.type() && !device->has_index());
  if (device->is_cpu() && !scope->turns_.empty()) {
    scope->missed_cpu_ = true;
  } else if (device->is_cpu() || is_own) {
    scope->take(is_own ? scope->device_ : *device);
  }
  return nullptr;
}

bool RandomScope::has(torch::Device device) const {
  return std::any_of(turns_.begin(), turns_.end(),
                     [&](const auto& turn) { return turn->is_cpu() == device.is_cpu(); });
}

void RandomScope::take(torch::Device device) {
  turns_.push_back(std::make_unique<Turn>(device, seed_));
}

Generators RandomScope::drawn() const {
  Generators drawn;
  for (const auto& turn : turns_) {
    if (turn->drawn()) (turn->is_cpu() ? drawn.cpu : drawn.device) = true;
  }
  return drawn;
}

void RandomScope::check() const {
  if (!missed_cpu_) return;
  throw ConfigError(lockstep::str(
      "the module drew from the CPU's random generator only after its first micro-batch, and from "
      "that of ",
      device_, " before; draw on ", device_, ", or in every micro-batch"));
}

}  // namespace lockstep::pipeline
