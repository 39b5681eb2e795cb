// What is wrong with a JSON file, in plain words instead of those of the library that parsed it.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// What an exception of nlohmann::json says: "line 3, column 7" of a text that is not JSON,
/// "'epochs' is missing", "expected number, got string". A std::logic_error of a number that cannot
/// be read, such as std::stod throws, counts as such; other texts stay as they are.
std::string json_problem(const std::exception& error);

/// One line about a file that cannot be used: "FILE is not JSON: line 3, column 7" where its text
/// is damaged, else "FILE EXPECTED: 'epochs' is missing", where `expected` is what the file is not,
/// as in "is not the profile of a step".
std::string json_refusal(const std::string& file, const std::string& expected,
                         const std::exception& error);

}  // namespace lockstep
