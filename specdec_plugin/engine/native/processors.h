// The processors that threads run on.
#pragma once

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif
#include <thread>

namespace native {

// The processor that runs the calling thread; -1: nobody knows.
static inline int processor() {
#ifdef __linux__
  return sched_getcpu();
#else
  return -1;
#endif
}

// Keeps a thread that sleeps from waking up on the processor of the thread that wakes it. Linux
// chooses an idle processor otherwise, but on a virtual machine those that idle may look taken.
// Then both threads share one processor for some ten milliseconds, and wait a time slice for each
// other.
class Elsewhere {
 public:
  // Is called by the thread that is about to wake another one.
  void keep_away(std::thread& sleeping) {
#ifdef __linux__
    const int own = processor();
    const auto other = sleeping.native_handle();
    if (own < 0 || own >= CPU_SETSIZE || kept_away_) return;
    if (pthread_getaffinity_np(other, sizeof(allowed_), &allowed_) != 0) return;
    cpu_set_t others = allowed_;
    CPU_CLR(own, &others);
    if (CPU_COUNT(&others) == 0 || CPU_EQUAL(&others, &allowed_)) return;
    kept_away_ = pthread_setaffinity_np(other, sizeof(others), &others) == 0;
#else
    (void)sleeping;
#endif
  }

  // Is called by the thread that was woken: it may run anywhere again, as before.
  void release() {
#ifdef __linux__
    if (!kept_away_) return;
    kept_away_ = false;
    pthread_setaffinity_np(pthread_self(), sizeof(allowed_), &allowed_);
#endif
  }

 private:
#ifdef __linux__
  cpu_set_t allowed_;
#endif
  bool kept_away_ = false;
};

}  // namespace native
