// Objects that belong to the process that made them.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace lockstep {

/// Like std::make_shared, but only the process that made the object destroys it. A forked child
/// inherits its memory but none of its threads: the child's destructor would wait for threads that
/// do not exist there, or tell peers that this rank leaves while the parent goes on. The child
/// leaks the object instead.
template <class T, class... Arguments>
std::shared_ptr<T> make_process_owned(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...),
                            [owner = getpid()](T* object) {
                              if (getpid() == owner) delete object;
                            });
}

}  // namespace lockstep
