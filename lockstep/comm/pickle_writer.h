// Writes Python's pickle format, protocol 2, of plain values: what a Python program loads without
// any class.
//
//   PickleWriter pickle;
//   pickle.begin_dict();
//   pickle.text("sizes"), pickle.begin_list(), pickle.integer(3), pickle.end_list();
//   pickle.end_dict();
//   write(pickle.finish());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Format: the opcodes documented in Python's Lib/pickletools.py. Nothing is shared between values
/// (no memo). A dictionary's values follow their keys. The caller keeps begin and end in balance.
class PickleWriter {
 public:
  PickleWriter();

  void none() { out_ += 'N'; }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void integer(std::int64_t value);
  void text(std::string_view utf8);

  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }
  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }
  /// Makes a tuple of the two values written last.
  void pair() { out_ += '\x86'; }

  /// The whole pickle; the writer must not be used afterwards.
  std::string finish();

 private:
  template <typename Integer>
  void little_endian(Integer value);

  std::string out_;
};

}  // namespace lockstep
