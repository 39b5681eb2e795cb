#include <lockstep/core/credentials.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace lockstep {
namespace {

constexpr std::string_view kSchemeEnd = "://";
constexpr auto kNowhere = std::string_view::npos;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

bool is_of_a_name(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
         std::string_view("._%+-").find(letter) != kNowhere;
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

// "ada:secret@host" without a scheme. An option's name may precede it: "--uri=ada:secret@host".
void hide_plain_user(std::string& word) {
  const auto at = word.rfind('@');
  if (at == kNowhere || word.find(kSchemeEnd) != kNowhere) return;
  const auto equals = word.find('=');
  const std::size_t begin =
      word.starts_with("--") && equals != kNowhere && equals < at ? equals + 1 : 0;
  const auto colon = word.find(':', begin);
  if (colon == kNowhere || colon == begin || colon > at) return;
  const auto name = std::string_view(word).substr(begin, colon - begin);
  if (std::ranges::all_of(name, is_of_a_name)) word.replace(begin, at - begin, kHiddenCredential);
}

void hide_users(std::string& word) {
  for (std::size_t from = 0;;) {
    const auto scheme = word.find(kSchemeEnd, from);
    if (scheme == kNowhere) return;
    from = scheme + kSchemeEnd.size();
    const std::size_t at = end_of_user(word, from);
    if (at == kNowhere) continue;
    word.replace(from, at - from, kHiddenCredential);
  }
}

bool names_a_secret(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  constexpr std::array kSecrets = {"token",   "secret",  "password",  "passwd",     "pwd", "apikey",
                                   "api_key", "api-key", "signature", "credential", "auth"};
  return lower == "key" || lower == "sig" || lower.ends_with("-sig") || lower.ends_with("_sig") ||
         std::ranges::any_of(
             kSecrets, [&](const char* secret) { return lower.find(secret) != std::string::npos; });
}

// The values of secrets in the queries and fragments of addresses.
void hide_parameters(std::string& word) {
  for (auto mark = word.find_first_of("?&#;"); mark != kNowhere;
       mark = word.find_first_of("?&#;", mark + 1)) {
    const auto equals = word.find_first_of("=?&#;", mark + 1);
    if (equals == kNowhere || word[equals] != '=') continue;
    const auto name = std::string_view(word).substr(mark + 1, equals - mark - 1);
    if (!names_a_secret(name)) continue;
    const auto end = std::min(word.find_first_of("&#;", equals), word.size());
    word.replace(equals + 1, end - equals - 1, kHiddenCredential);
  }
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

}  // namespace

std::string word_without_credentials(std::string_view word) {
  std::string hidden(word);
  hide_plain_user(hidden);
  hide_users(hidden);
  if (hidden.find(kSchemeEnd) != kNowhere) hide_parameters(hidden);
  return hidden;
}

std::string without_credentials(std::string_view text) {
  constexpr std::string_view kEnds = " \t\r\n'\"`<>(){}";
  std::string result;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(kEnds), text.size());
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
