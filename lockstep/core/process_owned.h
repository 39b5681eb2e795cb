// Objects that belong to the process that created them.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace lockstep {

/// Like std::make_shared, but only the creating process destroys the object. A forked child
/// inherits the object's memory but none of its threads: in the child, the destructor would wait
/// for threads that do not exist there, or tell peers that this rank is leaving while the parent
/// continues. The child leaks the object instead.
template <class T, class... Arguments>
std::shared_ptr<T> make_process_owned(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...),
                            [owner = getpid()](T* object) {
                              if (getpid() == owner) delete object;
                            });
}

}  // namespace lockstep
