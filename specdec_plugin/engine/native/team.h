// The threads of one call, inside an OpenMP parallel region; one thread without OpenMP.
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

namespace native {

struct Team {
#ifdef _OPENMP
  const int index = omp_get_thread_num(), size = omp_get_num_threads();
#else
  const int index = 0, size = 1;
#endif

  // Everyone's work before is seen by everyone after.
  void wait() const {
#ifdef _OPENMP
    if (size > 1) {
#pragma omp barrier
    }
#endif
  }

  // This thread's share of `count` things: [begin, end).
  int begin(int count) const { return static_cast<int>(static_cast<long>(count) * index / size); }
  int end(int count) const { return static_cast<int>(static_cast<long>(count) * (index + 1) / size); }
};

}  // namespace native
