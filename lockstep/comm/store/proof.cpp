#include <lockstep/comm/store/proof.h>

#include <sys/random.h>

#include <cerrno>

#include <lockstep/core/error.h>

namespace lockstep::tcp_store {

std::string fresh_number() {
  std::string bytes(kNumberBytes, '\0');
  // A request of this size is served completely or not at all.
  ssize_t count = 0;
  do {
    count = getrandom(bytes.data(), bytes.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count != std::ssize(bytes)) {
    throw Error(str("no random numbers for the proof of LOCKSTEP_SECRET: ", errno_text(errno)));
  }
  return bytes;
}

std::string client_proof(const Mac& mac, const std::string& client_number,
                         const std::string& store_number) {
  return mac("lockstep store, client " + client_number + store_number);
}

std::string store_proof(const Mac& mac, const std::string& client_number,
                        const std::string& store_number) {
  return mac("lockstep store, server " + client_number + store_number);
}

bool equal_in_constant_time(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace lockstep::tcp_store
