// Checks whether a page is well-formed XML. Supports only what our own pages use: no processing
// instructions and no CDATA.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/strings.h>

namespace lockstep::testing_support {

/// Describes the first error in `page`; empty if it is well-formed. Tags must be nested and closed,
/// attributes must be quoted and contain no "<", and each ampersand must begin an entity of XML.
inline std::string malformed(std::string_view page) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < page.size(); ++at) {
    const auto here = [&](const std::string& what) {
      return str(what, " at ", at, ": ", std::string(page.substr(at, 60)));
    };
    if (page[at] == '&') {
      bool is_known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"}) {
        is_known = is_known || page.substr(at).starts_with(entity);
      }
      if (!is_known) return here("an ampersand");
    }
    if (page[at] != '<') continue;
    const std::size_t end = page.find('>', at);
    if (end == std::string_view::npos) return here("a tag without an end");
    const std::string_view tag = page.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string_view::npos) return here("a tag in a tag");
    if (tag.starts_with("!DOCTYPE")) continue;
    const bool closes = tag.starts_with('/');
    const std::string name(
        tag.substr(closes ? 1 : 0, tag.find_first_of(" \n/", closes ? 1 : 0) - (closes ? 1 : 0)));
    if (name.empty() || std::isalpha(static_cast<unsigned char>(name[0])) == 0)
      return here("no name");
    std::size_t quotes = 0;
    for (const char c : tag) quotes += c == '"' ? 1 : 0;
    if (quotes % 2 != 0) return here("an open quote");
    if (closes) {
      if (open.empty() || open.back() != name) {
        return here(str("</", name, "> closes ", open.empty() ? "nothing" : open.back()));
      }
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : str("<", open.back(), "> is never closed");
}

}  // namespace lockstep::testing_support
