// The processors that threads run on.
#pragma once

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#endif

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
// other. Functions for POSIX threads would do the same, but a wheel that calls them needs glibc
// 2.34.
class Elsewhere {
 public:
  // Is called by the thread that others will wake, before it sleeps for the first time.
  void begin() {
#ifdef __linux__
    thread_ = pid_t(syscall(SYS_gettid));
#endif
  }

  // Is called by the thread that is about to wake another one.
  void keep_away() {
#ifdef __linux__
    const int own = processor();
    if (own < 0 || own >= CPU_SETSIZE) return;
    if (sched_getaffinity(thread_, sizeof(allowed_), &allowed_) != 0) return;
    others_ = allowed_;
    CPU_CLR(own, &others_);
    if (CPU_COUNT(&others_) == 0 || CPU_EQUAL(&others_, &allowed_)) return;
    kept_away_ = sched_setaffinity(thread_, sizeof(others_), &others_) == 0;
#endif
  }

  // Is called by the thread that was woken: it may run anywhere again, as before. If somebody else
  // has chosen its processors meanwhile, these stay.
  void release() {
#ifdef __linux__
    if (!kept_away_) return;
    kept_away_ = false;
    if (!may_run_on(others_)) return;
    // Linux keeps what is set here. A thread that had all processors of its container, and was set
    // to these, would not get those that the container gets later.
    cpu_set_t all;
    std::memset(&all, 0xff, sizeof(all));
    sched_setaffinity(0, sizeof(all), &all);
    if (!may_run_on(allowed_)) sched_setaffinity(0, sizeof(allowed_), &allowed_);
#endif
  }

 private:
#ifdef __linux__
  pid_t thread_ = 0;
  cpu_set_t allowed_, others_;
  bool kept_away_ = false;

  // Whether the calling thread may run on just these processors.
  static bool may_run_on(const cpu_set_t& processors) {
    cpu_set_t found;
    return sched_getaffinity(0, sizeof(found), &found) == 0 && CPU_EQUAL(&found, &processors);
  }
#endif
};

}  // namespace native
