// The threads of one call, inside an OpenMP parallel region; one thread without OpenMP.
#pragma once

#include <atomic>
#include <thread>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace native {

// Threads that wait for each other many times in one call. Waits last microseconds, so they spin;
// OpenMP's own barrier takes ten times as long. Where there are fewer processors than threads, a
// waiting thread soon lets the others run.
class Barrier {
 public:
  void wait(int size) {
    const int phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
      if (spins > 10000) std::this_thread::yield();
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
  }

 private:
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> phase_{0};
};

struct Team {
  // One thread alone.
  Team() : index(0), size(1), barrier_(nullptr) {}
#ifdef _OPENMP
  // To be made by every thread of a parallel region, with one barrier for all of them.
  explicit Team(Barrier& barrier)
      : index(omp_get_thread_num()), size(omp_get_num_threads()), barrier_(&barrier) {}
#else
  explicit Team(Barrier& barrier) : index(0), size(1), barrier_(&barrier) {}
#endif

  // Everyone's work before is seen by everyone after.
  void wait() const {
    if (size > 1) barrier_->wait(size);
  }

  // This thread's share of `count` things: [begin, end).
  int begin(int count) const { return int(long(count) * index / size); }
  int end(int count) const { return int(long(count) * (index + 1) / size); }

  const int index, size;

 private:
  Barrier* barrier_;
};

}  // namespace native
