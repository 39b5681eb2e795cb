// Ends the program with one line for uncaught exceptions, even when out of memory: LibTorch's
// static objects are constructed before main() and need a few hundred MB of address space.
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

namespace {

std::terminate_handler default_handler = nullptr;

// Must not allocate.
[[noreturn]] void end_for_lack_of_memory() {
  constexpr std::string_view kLine = "error: out of memory\n";
  _exit(write(STDERR_FILENO, kLine.data(), kLine.size()) < 0 ? 2 : 1);
}

[[noreturn]] void on_terminate() {
  if (const std::exception_ptr error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (const std::bad_alloc&) {
      end_for_lack_of_memory();
    } catch (...) {
      // A defect: the default handler names it and leaves a core.
    }
  }
  default_handler();
  std::abort();
}

void install() { default_handler = std::set_terminate(&on_terminate); }

// Called before the static objects of all libraries are constructed.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_all)() = &install;

}  // namespace
