// The program `lockstep`. Nothing here may start a thread or use a tensor, because `train` forks
// its ranks from this process.
#include <fcntl.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include <torch/version.h>

#include <lockstep/cli/build_commit.h>
#include <lockstep/cli/commands.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/program.h>

namespace {

// Otherwise the first socket would get the number of a stream that the user closed, and receive
// output.
void open_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest free number
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_streams();
  lockstep::cli::log_with_flags();
  const std::string version =
      lockstep::cli::version_text(LOCKSTEP_VERSION, lockstep::cli::build_commit(), TORCH_VERSION);
  return lockstep::cli::run_program(argc, argv, version, lockstep::cli::all_commands(), std::cout,
                                    std::cerr);
}
