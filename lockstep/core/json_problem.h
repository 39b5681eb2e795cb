// Describes errors in a JSON file in plain words, not the parser's.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// Rephrases an exception of nlohmann::json: "line 3, column 7" if the text is not JSON, "'epochs'
/// is missing", "expected number, got string". Also rephrases the std::logic_error that std::stod
/// throws for an unreadable number. Other texts stay unchanged.
std::string json_problem(const std::exception& error);

/// One line about a file that cannot be used: "FILE is not JSON: line 3, column 7" if its text is
/// damaged, otherwise "FILE EXPECTED: 'epochs' is missing", where `expected` is for example "is not
/// the profile of a step".
std::string json_refusal(const std::string& file, const std::string& expected,
                         const std::exception& error);

}  // namespace lockstep
