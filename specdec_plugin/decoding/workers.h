// Workers that take sentences from one queue.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "decoding/watch.h"
#include "engine/native/full_memory.h"
#include "engine/native/team.h"

namespace native {

// They keep what they have allocated for the next queue.
template <class Worker>
class Workers {
 public:
  // A single worker has all threads, and each of several has one.
  //
  // run: is called with a worker, the index of the next sentence, the watch, the worker's own index
  // and its threads.
  //
  // It returns how many there were: `count`, or fewer where this process has not so many threads.
  template <class Run>
  int run(int count, int threads, const WatchCall& call, const Run& run) {
    count = std::min(count, most_threads());
    while (int(workers_.size()) < count) workers_.emplace_back(new Worker);
    std::atomic<int> next{0};
    Watch watch(call);
    if (count == 1) {
      run(*workers_[0], next, watch, 0, threads);
      return count;
    }
    Thrown thrown;
    parallel(count, [&](const Team& team) {
      thrown.keep([&] { run(*workers_[team.index], next, watch, team.index, 1); });
      watch.leave(team);
    });
    thrown.rethrow();
    return count;
  }

  const Worker& operator[](int index) const { return *workers_[index]; }

 private:
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace native
