// How far the workers of a long call are, and whether they must stop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "engine/native/team.h"
#include "interface.h"

namespace native {

// The worker in the calling thread tells Python now and then what is done. All workers look whether
// Python, where signals such as Ctrl-C are handled, wants them to stop.
class Watch {
 public:
  explicit Watch(const WatchCall& call)
      : tell_(reinterpret_cast<Tell>(call.tell)),
        pause_(call.pause),
        told_(std::chrono::steady_clock::now()) {}

  void finished(int64_t tokens) {
    sentences_.fetch_add(1, std::memory_order_relaxed);
    tokens_.fetch_add(tokens, std::memory_order_relaxed);
  }

  // worker: from 0, which is the one in the calling thread.
  bool stopped(int worker) {
    if (worker == 0 && tell_) {
      const auto now = std::chrono::steady_clock::now();
      if (std::chrono::duration<double>(now - told_).count() >= pause_) {
        told_ = now;
        if (tell_(sentences_.load(), tokens_.load())) stopped_.store(true);
      }
    }
    return stopped_.load(std::memory_order_relaxed);
  }

  // Each worker that has nothing left calls it. The one in the calling thread tells Python until
  // all have: the others may still have long sentences.
  void leave(const Team& team) {
    left_.raise_among_others();
    if (team.index == 0) left_.wait_for(team.size, SPINS, nullptr, [this] { stopped(0); });
  }

 private:
  static constexpr int SPINS = 60000;  // as at the end of a job

  using Tell = int (*)(int64_t, int64_t);

  const Tell tell_;
  const double pause_;
  std::chrono::steady_clock::time_point told_;
  std::atomic<int64_t> sentences_{0}, tokens_{0};
  std::atomic<bool> stopped_{false};
  Counter left_;
};

}  // namespace native
