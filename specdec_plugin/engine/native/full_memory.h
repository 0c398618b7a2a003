// What happens where memory is full.
#pragma once

#include <atomic>
#include <new>

namespace native {

// Whether a call was completed, and not ended by full memory.
template <class Call>
bool completed(const Call& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// Whether memory was full for one of several threads, for the thread that waits for them. They
// throw nothing else. std::exception_ptr would bind a wheel to the C++ library of GCC 11.
class Thrown {
 public:
  // Does a thread's work.
  template <class Work>
  void keep(const Work& work) {
    if (!completed(work)) full_.store(true);
  }

  // Throws what they threw, when all are done.
  void rethrow() const {
    if (full_.load()) throw std::bad_alloc();
  }

 private:
  std::atomic<bool> full_{false};
};

}  // namespace native
