// Removes passwords and tokens from texts that are shown or stored.
//
// Addresses of servers may contain them: http://ada:secret@host, https://t0ken@host,
// https://host/data?token=t0ken. The log, the program's error lines, and the command and error in
// the record of a run pass through these functions. A message that quotes an address hides its
// credentials first, because a blank in a password ends a word of the whole text.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Takes the place of what was removed.
inline constexpr std::string_view kHiddenCredential = "***";

/// `word`, an address or an argument that may contain addresses, without what precedes the last "@"
/// of an address (with or without a scheme), and without the values of parameters of a query whose
/// names speak of a secret, such as "access_token" or "X-Amz-Signature". Passwords often have
/// characters that a URL would have to encode, so everything before that "@" is hidden, even if it
/// may be a host and a path: "http://ada:12/34@host" and "http://host:80/a@b" are alike.
std::string word_without_credentials(std::string_view word);

/// word_without_credentials() of each word of a text. Words end at blanks and line breaks.
std::string without_credentials(std::string_view text);

/// An address, and the user's part that was taken out of it.
struct AddressParts {
  std::string address{};   ///< without the user's part
  std::string username{};  ///< decoded; empty: the address names no user
  std::string password{};  ///< decoded
};

/// Takes user and password out of an address with a scheme, as in http://ada:secret@host/path. An
/// "@" that follows a host, a port of digits and a slash belongs to the path.
AddressParts address_parts(std::string_view address);

}  // namespace lockstep
