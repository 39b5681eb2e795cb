#include <lockstep/core/credentials.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include <lockstep/core/strings.h>

namespace lockstep {
namespace {

constexpr std::string_view kSchemeEnd = "://";
constexpr std::string_view kBlanks = " \t\r\n\f\v";
// What may stand between two addresses, or between an address and the text around it.
constexpr std::string_view kSeparators = " \t\r\n\f\v,;|'\"`<>(){}";
constexpr auto kNowhere = std::string_view::npos;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_hex_digit(char letter) { return std::isxdigit(static_cast<unsigned char>(letter)) != 0; }
bool is_alphanumeric(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0; }

bool is_of_a_scheme(char letter) {
  return is_alphanumeric(letter) || letter == '+' || letter == '-' || letter == '.';
}

bool is_of_an_identifier(char letter) { return is_alphanumeric(letter) || letter == '_'; }

bool is_one_of(std::string_view letters, char letter) { return letters.find(letter) != kNowhere; }

std::size_t begin_of_scheme(std::string_view text, std::size_t mark) {
  while (mark > 0 && is_of_a_scheme(text[mark - 1])) --mark;
  return mark;
}

// Where the address ends whose authority begins at `begin`: before the next address, or at the end
// of the text.
std::size_t end_of_address(std::string_view text, std::size_t begin) {
  for (auto mark = text.find(kSchemeEnd, begin); mark != kNowhere;
       mark = text.find(kSchemeEnd, mark + 1)) {
    const std::size_t scheme = begin_of_scheme(text, mark);
    if (begin < scheme && scheme < mark && is_one_of(kSeparators, text[scheme - 1])) return scheme;
  }
  return text.size();
}

// "[::1]" and "[::1]:5000".
bool is_bracketed_host(std::string_view authority) {
  const auto end = authority.find(']');
  if (!authority.starts_with('[') || end == kNowhere) return false;
  const std::string_view port = authority.substr(end + 1);
  return std::ranges::all_of(
             authority.substr(1, end - 1),
             [](char letter) { return is_hex_digit(letter) || is_one_of(":.%", letter); }) &&
         (port.empty() || (port.front() == ':' && std::ranges::all_of(port.substr(1), is_digit)));
}

// The place of the last "@" of an address without its scheme, if what precedes it may name a user:
// in "ada:12/34@host" nothing tells a password with a slash from a port and a path.
std::size_t end_of_possible_user(std::string_view address) {
  const auto at = address.rfind('@');
  if (at == kNowhere) return kNowhere;
  if (is_bracketed_host(address.substr(0, address.find_first_of("/?#")))) return kNowhere;
  const bool is_local_path =
      address.starts_with('/') && address.substr(0, at).find(':') == kNowhere;
  return is_local_path ? kNowhere : at;
}

// Whether what follows the colon of this authority is no port, so that it may be the beginning of a
// password with a slash.
bool has_wrong_port(std::string_view authority) {
  const auto colon = authority.rfind(':');
  if (colon == kNowhere || authority.ends_with(']')) return false;
  return !std::ranges::all_of(authority.substr(colon + 1), is_digit);
}

// The place of the "@" that ends the user's part of the address whose authority begins at `begin`.
std::size_t end_of_user(std::string_view word, std::size_t begin) {
  const std::string_view authority = word.substr(begin, word.find_first_of("/?#", begin) - begin);
  const auto at = authority.rfind('@');
  if (at != kNowhere) return begin + at;
  if (!has_wrong_port(authority)) return kNowhere;
  const auto later = word.rfind('@');
  return later != kNowhere && later > begin ? later : kNowhere;
}

// "plt" of "c10::f@plt+0x10", the version of "std::f@@GLIBCXX_3.4", or an address in memory or a
// number.
bool is_of_a_symbol(std::string_view ending) {
  const auto* const end = std::ranges::find_if_not(ending, is_of_an_identifier);
  const std::string_view word(ending.begin(), end);
  if (word == "plt" || word == "got" || word.starts_with("0x")) return true;
  if (!word.empty() && std::ranges::all_of(word, is_digit)) return word.size() == ending.size();
  const auto mark = word.rfind('_');
  if (mark == kNowhere || mark == 0) return false;
  const std::string_view version = word.substr(mark + 1);
  return std::ranges::all_of(word.substr(0, mark),
                             [](char letter) {
                               return (letter >= 'A' && letter <= 'Z') || is_digit(letter) ||
                                      letter == '_';
                             }) &&
         !version.empty() && std::ranges::all_of(version, is_digit);
}

// The "sha256:..." of an image of containers.
bool is_digest(std::string_view ending) {
  constexpr std::size_t kFewestDigits = 32;
  const auto colon = ending.find(':');
  if (!ending.starts_with("sha") || colon == kNowhere) return false;
  const std::string_view digits = ending.substr(colon + 1, kFewestDigits);
  return digits.size() == kFewestDigits && std::ranges::all_of(digits, is_hex_digit);
}

// Where the name begins that ends at `colon`.
std::size_t begin_of_name(std::string_view text, std::size_t colon) {
  std::size_t begin = colon;
  while (begin > 0 && !is_one_of(kSeparators, text[begin - 1]) && text[begin - 1] != '=') --begin;
  return text.substr(begin, colon - begin).starts_with("//") ? begin + 2 : begin;
}

// `text`, in which no address has a scheme, with "ada:secret@host" hidden. An option's name or a
// quote may precede the user: "--uri=ada:secret@host".
std::string without_plain_user(std::string_view text) {
  const auto at = text.rfind('@');
  if (at == kNowhere) return std::string(text);
  const std::string_view ending = text.substr(at + 1);
  for (auto colon = text.find(':'); colon < at; colon = text.find(':', colon + 1)) {
    const std::size_t begin = begin_of_name(text, colon);
    const std::string_view name = text.substr(begin, colon - begin);
    if (name.empty() || name.find_first_of(":/\\@") != kNowhere) continue;
    const bool is_scope = text.substr(colon).starts_with("::");
    if (name == "mailto" || is_digest(ending) || (is_scope && is_of_a_symbol(ending))) break;
    return str(text.substr(0, begin), kHiddenCredential, text.substr(at));
  }
  return std::string(text);
}

std::string without_users(std::string_view text) {
  std::string result;
  auto mark = text.find(kSchemeEnd);
  if (mark == kNowhere) return without_plain_user(text);
  const std::size_t scheme = begin_of_scheme(text, mark);
  result += without_plain_user(text.substr(0, scheme));
  result += text.substr(scheme, mark - scheme);
  while (mark != kNowhere) {
    const std::size_t begin = mark + kSchemeEnd.size();
    const std::size_t end = end_of_address(text, begin);
    const std::string_view address = text.substr(begin, end - begin);
    const std::size_t at = end_of_possible_user(address);
    result += kSchemeEnd;
    if (at == kNowhere) {
      result += address;
    } else {
      result.append(kHiddenCredential).append(address.substr(at));
    }
    mark = end < text.size() ? text.find(kSchemeEnd, end) : kNowhere;
    if (mark != kNowhere) result += text.substr(end, mark - end);
  }
  return result;
}

std::string decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    const bool is_code = text[i] == '%' && i + 2 < text.size() &&
                         std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    plain += is_code ? static_cast<char>(value) : text[i];
    if (is_code) i += 2;
  }
  return plain;
}

bool names_a_secret(std::string_view name) {
  std::string lower = decoded(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  constexpr std::array kSecrets = {"token",   "secret",    "passw",      "passphrase", "pwd",
                                   "apikey",  "api_key",   "api-key",    "accesskey",  "access_key",
                                   "private", "signature", "credential", "auth",       "jwt"};
  constexpr std::array kEndings = {"-key", "_key", "-sig", "_sig"};
  return lower == "key" || lower == "sig" || lower == "pass" ||
         std::ranges::any_of(kEndings,
                             [&](const char* ending) { return lower.ends_with(ending); }) ||
         std::ranges::any_of(
             kSecrets, [&](const char* secret) { return lower.find(secret) != std::string::npos; });
}

// Whether another parameter follows the semicolon at `mark`, which otherwise belongs to a value.
bool begins_a_parameter(std::string_view word, std::size_t mark) {
  const auto equals = word.find_first_of("=?&#;", mark + 1);
  return equals != kNowhere && equals > mark + 1 && word[equals] == '=';
}

// Where the value ends that begins at `begin`. Quotes, brackets and stops at the end of the word
// belong to the text around the address.
std::size_t end_of_value(std::string_view word, std::size_t begin) {
  for (std::size_t i = begin; i < word.size(); ++i) {
    if (word[i] == '&' || word[i] == '#') return i;
    if (word[i] == ';' && begins_a_parameter(word, i)) return i;
  }
  std::size_t end = word.size();
  while (end > begin && is_one_of("'\"`<>(){}[],.:;", word[end - 1])) --end;
  return end;
}

// The values of secrets in the queries and fragments of addresses.
void hide_parameters(std::string& word) {
  for (auto mark = word.find_first_of("?&#;"); mark != kNowhere;
       mark = word.find_first_of("?&#;", mark + 1)) {
    const auto equals = word.find_first_of("=?&#;", mark + 1);
    if (equals == kNowhere || word[equals] != '=') continue;
    const auto name = std::string_view(word).substr(mark + 1, equals - mark - 1);
    if (!names_a_secret(name)) continue;
    const std::size_t end = end_of_value(word, equals + 1);
    word.replace(equals + 1, end - equals - 1, kHiddenCredential);
  }
}

}  // namespace

std::string word_without_credentials(std::string_view word) {
  std::string hidden = without_users(word);
  const bool may_have_query = hidden.find(kSchemeEnd) != kNowhere || hidden.find('?') != kNowhere;
  if (may_have_query) hide_parameters(hidden);
  return hidden;
}

std::string without_credentials(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(kBlanks), text.size());
    if (end > 0) result += word_without_credentials(text.substr(0, end));
    if (end < text.size()) result += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

AddressParts address_parts(std::string_view address) {
  const auto scheme = address.find(kSchemeEnd);
  if (scheme == kNowhere) return {.address = std::string(address)};
  const std::size_t begin = scheme + kSchemeEnd.size();
  const std::size_t at = end_of_user(address, begin);
  if (at == kNowhere) return {.address = std::string(address)};
  const std::string_view user = address.substr(begin, at - begin);
  const auto colon = user.find(':');
  AddressParts parts{.address = std::string(address.substr(0, begin)),
                     .username = decoded(user.substr(0, colon)),
                     .password = colon == kNowhere ? "" : decoded(user.substr(colon + 1))};
  parts.address += address.substr(at + 1);
  return parts;
}

}  // namespace lockstep
