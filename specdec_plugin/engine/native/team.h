// The threads of an OpenMP parallel region; one thread without OpenMP.
#pragma once

#include <atomic>
#include <thread>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace native {

// Threads wait here for each other, many times in a call. Waits last microseconds, so threads spin;
// OpenMP's own barrier takes ten times as long. Each thread counts its arrivals in a cache line of
// its own, and reads the others' lines: a common counter and a signal would move two lines. A
// thread that waits long yields, because there may be fewer processors than threads.
class Barrier {
 public:
  explicit Barrier(int threads) : arrivals_(threads) {}

  void wait(int index, int size) {
    std::atomic<unsigned>& own = arrivals_[index].count;
    const unsigned phase = own.load(std::memory_order_relaxed) + 1;
    own.store(phase, std::memory_order_release);
    for (int other = 0; other < size; ++other)
      if (other != index) wait_for(arrivals_[other].count, phase);
  }

 private:
  struct alignas(64) Arrivals {
    std::atomic<unsigned> count{0};
  };
  std::vector<Arrivals> arrivals_;

  // Another thread may be a phase ahead, and the counts may wrap around.
  static void wait_for(const std::atomic<unsigned>& count, unsigned phase) {
    for (int spins = 0; int(count.load(std::memory_order_acquire) - phase) < 0; ++spins) {
      if (spins > 10000) std::this_thread::yield();
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
  }
};

struct Team {
  // One thread alone.
  Team() : index(0), size(1), barrier_(nullptr) {}
#ifdef _OPENMP
  // Every thread of a parallel region makes its own, with one barrier for all of them.
  explicit Team(Barrier& barrier)
      : index(omp_get_thread_num()), size(omp_get_num_threads()), barrier_(&barrier) {}
#else
  explicit Team(Barrier&) : Team() {}
#endif

  // Each thread sees afterwards what all threads did before.
  void wait() const {
    if (size > 1) barrier_->wait(index, size);
  }

  // This thread's share of `count` things: [begin, end).
  int begin(int count) const { return int(long(count) * index / size); }
  int end(int count) const { return int(long(count) * (index + 1) / size); }

  const int index, size;

 private:
  Barrier* barrier_;
};

}  // namespace native
