#include <lockstep/launch/random_secret.h>

#include <sys/random.h>

#include <array>
#include <cerrno>

#include <lockstep/core/error.h>

namespace lockstep::launch {

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  // A request of this size is served completely or not at all.
  ssize_t got = 0;
  do {
    got = getrandom(bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(bytes.size())) {
    throw Error(str("no random numbers for the secret of the job: ", errno_text(errno)));
  }
  return hex_text(bytes);
}

}  // namespace lockstep::launch
