// The messages between a store and its clients: the protocol of PyTorch's TCPStore, which torchrun
// also serves.
//
// A query is its number in one byte, followed by its fields. Numbers of 32 and 64 bits use the
// machine's byte order. A text is its length in 64 bits followed by its bytes; a list is its length
// in 64 bits followed by its texts. A connection begins with kValidate and the magic number.
//
// kMeet and kProve are Lockstep's own: with them the two ends of a connection to a store that rank
// 0 serves prove the secret of the job to each other (proof.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep::tcp_store {

/// The comments list the fields of each query, if any, and then its answer.
enum class Query : std::uint8_t {
  kValidate,    ///< magic number; no answer
  kSet,         ///< key, value; no answer
  kCompareSet,  ///< key, expected, desired; the key's value afterwards
  kGet,         ///< key, which must exist; its value
  kAdd,         ///< key, number; the sum
  kCheck,       ///< keys; Found
  kWait,        ///< keys; Waited, once all exist
  kCountKeys,   ///< number of keys
  kDelete,      ///< key; number of deleted keys
  kAppend,      ///< key, value; no answer
  kMultiGet,    ///< keys, which must exist; their values
  kMultiSet,    ///< number of pairs, then key and value of each pair; no answer
  kCancelWait,  ///< Waited::kCancelled, even if the wait was answered before
  kPing,        ///< 32 bits; the same 32 bits

  kMeet = 100,  ///< the client's random number; the store's, or an empty text without a secret
  kProve,       ///< the client's proof; the store's, or an empty text if the client's is wrong
};

enum class Found : std::uint8_t { kAll, kNotAll };
enum class Waited : std::uint8_t { kAllExist, kCancelled };

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;

/// A query or an answer under construction.
class Message {
 public:
  Message() = default;
  explicit Message(Query query) { add(query); }

  template <class Value>
  Message& add(const Value& value) {
    static_assert(std::is_arithmetic_v<Value> || std::is_enum_v<Value>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Message& add_text(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  Message& add_texts(const std::vector<std::string>& texts) {
    add(static_cast<std::uint64_t>(texts.size()));
    for (const auto& text : texts) add_text(text);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace lockstep::tcp_store
