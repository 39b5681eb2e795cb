// Counts the calls in which a program that uses LibTorch waits for a GPU.
//
//   LOCKSTEP_CUDA_CALLS=counts LD_PRELOAD=cuda_call_counter.so PROGRAM
//
// `counts` is a file of kCalls zero 64-bit words, to which all processes of the program add: a word
// for each kind of call on a process's first thread, which trains, and one for all calls on other
// threads, such as a loader's. A call for a stream or an event that has already ended does not
// wait, and is not counted. LibTorch calls libcudart through the dynamic linker, which finds these
// functions first. Calls that cuDNN and cuBLAS make internally are not counted.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

// The order of the words in the file.
enum Call {
  kStreamSynchronize,
  kDeviceSynchronize,
  kEventSynchronize,
  kMemcpy,
  kOnOtherThreads,
  kCalls
};

using Counter = std::atomic<std::uint64_t>;
static_assert(Counter::is_always_lock_free && sizeof(Counter) == sizeof(std::uint64_t));

Counter* map_counters() {
  const char* const file = std::getenv("LOCKSTEP_CUDA_CALLS");
  const int fd = file != nullptr ? open(file, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return nullptr;
  void* const memory =
      mmap(nullptr, kCalls * sizeof(Counter), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<Counter*>(memory);
}

void count(Call call) {
  static Counter* const counters = map_counters();
  if (counters == nullptr) return;
  const bool is_first_thread = gettid() == getpid();
  counters[is_first_thread ? call : kOnOtherThreads].fetch_add(1, std::memory_order_relaxed);
}

// Finds a function of libcudart, even if Python has loaded that library with local visibility.
void* real_function(const char* name) {
  if (void* const next = dlsym(RTLD_NEXT, name)) return next;
  void* const library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? dlsym(library, name) : nullptr;
}

constexpr int kNotReady = 600;      // cudaErrorNotReady
constexpr int kNotSupported = 801;  // cudaErrorNotSupported

template <class... Arguments>
int pass_on(void* function, Arguments... arguments) {
  if (function == nullptr) return kNotSupported;
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

// Counts a wait for the stream or event, unless `query`, cudaStreamQuery or cudaEventQuery, says
// that it has ended.
void count_wait(Call call, void* query, void* awaited) {
  const int state = query == nullptr ? kNotReady : pass_on(query, awaited);
  if (state == 0) return;
  if (query != nullptr && state == kNotReady) {
    // LibTorch would take the query's result for an error of its next kernel.
    static void* const forget_error = real_function("cudaGetLastError");
    pass_on(forget_error);
  }
  count(call);
}

}  // namespace

extern "C" {

int cudaStreamSynchronize(void* stream) {
  static void* const real = real_function("cudaStreamSynchronize");
  static void* const query = real_function("cudaStreamQuery");
  count_wait(kStreamSynchronize, query, stream);
  return pass_on(real, stream);
}

int cudaDeviceSynchronize() {
  static void* const real = real_function("cudaDeviceSynchronize");
  count(kDeviceSynchronize);
  return pass_on(real);
}

int cudaEventSynchronize(void* event) {
  static void* const real = real_function("cudaEventSynchronize");
  static void* const query = real_function("cudaEventQuery");
  count_wait(kEventSynchronize, query, event);
  return pass_on(real, event);
}

int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  static void* const real = real_function("cudaMemcpy");
  count(kMemcpy);
  return pass_on(real, to, from, bytes, kind);
}
}
