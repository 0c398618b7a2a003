// What happens where memory is full.
#pragma once

#include <exception>
#include <mutex>
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

// What one of several threads throws, for the thread that waits for them.
class Thrown {
 public:
  // Does a thread's work, and keeps what it throws.
  template <class Work>
  void keep(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!first_) first_ = std::current_exception();
    }
  }

  // Throws it, when all threads are done.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace native
