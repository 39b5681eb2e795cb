// The program `lockstep`.
#include <fcntl.h>
#include <unistd.h>

#include <lockstep/cli/commands.h>

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
  return lockstep::cli::run_lockstep(argc, argv);
}
