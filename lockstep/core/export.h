// The names that the shared library exports.
#pragma once

/// Marks a class, function or variable that liblockstep.so exports. Every source is compiled with
/// -fvisibility=hidden, which hides all other names. Templates, inline functions, enumerations and
/// the members of a marked class need no mark.
#define LOCKSTEP_API __attribute__((visibility("default")))
