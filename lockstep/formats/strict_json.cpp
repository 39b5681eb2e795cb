#include <lockstep/formats/strict_json.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/json_problem.h>
#include <lockstep/core/strings.h>
#include <lockstep/formats/printable.h>

namespace lockstep::formats {
namespace {

using Json = nlohmann::json;

// Builds the value while the parser reads. The parser itself is not recursive.
class Builder {
 public:
  Builder(Json& root, int maximum_depth) : root_(root), maximum_depth_(maximum_depth) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& value) { return add(std::move(value)); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    const auto [place, inserted] =
        open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(value));
    if (!inserted) throw StrictJsonError(str("repeats '", printable(place->first), "'"));
    slot_ = &place->second;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) {
    throw StrictJsonError(str("is not valid JSON (", printable(json_problem(error)), ")"));
  }

 private:
  template <class Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }
  template <class Value>
  Json* place(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& items = open_.back()->get_ref<Json::array_t&>();
      return &items.emplace_back(std::forward<Value>(value));
    }
    *slot_ = std::forward<Value>(value);
    return slot_;
  }
  bool open(Json&& container) {
    if (static_cast<int>(open_.size()) >= maximum_depth_) {
      throw StrictJsonError("is nested too deeply");
    }
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  int maximum_depth_;
  Json* slot_ = nullptr;     // where the value of the last key goes
  std::vector<Json*> open_;  // the containers that are not complete; their addresses stay valid,
                             // because a container grows only while it is the innermost one
};

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, int maximum_depth) {
  // The parser would take it for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw StrictJsonError(str("is not valid JSON (byte ", nul, " is NUL)"));
  }
  Json result;
  Builder builder(result, maximum_depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return result;
}

}  // namespace lockstep::formats
