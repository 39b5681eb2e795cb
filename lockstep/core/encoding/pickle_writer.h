// Writes Python's pickle format, protocol 2: plain values, which Python loads without any class,
// and calls of named functions, which torch.save uses to describe tensors.
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

/// Format: the opcodes documented in Python's Lib/pickletools.py. Values are never shared (no
/// memo). Write each key of a dictionary, then its value. The caller must balance begin and end.
class PickleWriter {
 public:
  PickleWriter();

  void none() { out_ += 'N'; }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void integer(std::int64_t value);
  void number(double value);
  void text(std::string_view utf8);

  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }
  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }
  void begin_tuple() { out_ += '('; }
  void end_tuple() { out_ += 't'; }
  /// Makes a tuple of the two values written last.
  void pair() { out_ += '\x86'; }

  /// A reference to `name` in Python's `module`; neither may hold a line break.
  void global(std::string_view module, std::string_view name);
  /// Calls the global written before the last tuple with that tuple as arguments.
  void call() { out_ += 'R'; }
  /// Writes an empty collections.OrderedDict. begin_items() and end_items() enclose items for the
  /// dictionary written last.
  void ordered_dict();
  void begin_items() { out_ += '('; }
  void end_items() { out_ += 'u'; }
  /// Turns the tuple written last into a reference to an object outside the pickle.
  void persistent_id() { out_ += 'Q'; }

  /// The whole pickle; the writer must not be used afterwards.
  std::string finish();

 private:
  template <typename Integer>
  void little_endian(Integer value);

  std::string out_;
};

}  // namespace lockstep
