#include <lockstep/cli/short_spins.h>

#include <linux/limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>

namespace lockstep::cli {
namespace {

constexpr const char* kChoices[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"};
constexpr const char* kShortSpins = "10000";

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

constexpr std::size_t kMostVariables = 4000;

bool is_command_that_computes(const char* word) {
  for (const char* each : {"train", "bench", "evaluate", "predict"}) {
    if (std::strcmp(word, each) == 0) return true;
  }
  return false;
}

// Whether `entry`, "NAME=VALUE", is the user's choice of how threads wait.
bool is_choice(const char* entry) {
  for (const char* name : kChoices) {
    const std::size_t length = std::strlen(name);
    if (std::strncmp(entry, name, length) == 0 && entry[length] == '=') return true;
  }
  return false;
}

// The dynamic linker calls this before all constructors. Libraries can be called, but have not been
// initialised: there are no streams, and setenv() does not work. Returns if there is nothing to do,
// or the program cannot be started again.
void start_again(int argc, char** argv, char** environment) {
  if (argc < 2 || !is_command_that_computes(argv[1])) return;
  static char* entries[kMostVariables + 2];
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMostVariables || is_choice(environment[count])) return;
    entries[count] = environment[count];
  }
  static char choice[64];
  std::strcat(std::strcat(std::strcpy(choice, kChoices[0]), "="), kShortSpins);
  entries[count] = choice;
  static char program[PATH_MAX + 1];
  if (readlink("/proc/self/exe", program, PATH_MAX) > 0) execve(program, argv, entries);
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_constructors)(int, char**, char**) = start_again;

#endif

}  // namespace

void set_short_spins() {
  for (const char* name : kChoices) {
    if (getenv(name) != nullptr) return;
  }
  setenv(kChoices[0], kShortSpins, 1);
}

}  // namespace lockstep::cli
