// Threads that share the work of a call.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/native/full_memory.h"
#include "engine/native/processors.h"

#ifdef SPECDEC_DELAYS
#include <random>
#endif

namespace native {

// Where threads meet, tests (SPECDEC_SANITIZE in build.py) let them come late at random, and sleep
// soon: an order of events that is rare on an idle machine is then frequent.
static inline void delay_in_tests() {
#ifdef SPECDEC_DELAYS
  static thread_local std::minstd_rand random{std::random_device{}()};
  const unsigned drawn = random() % 64;
  if (drawn == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
  if (drawn % 8 == 1) std::this_thread::yield();
#endif
}

static inline int in_tests(int spins) {
#ifdef SPECDEC_DELAYS
  return spins / 1000;
#else
  return spins;
#endif
}

// A count that one thread raises and others wait for. Waits mostly last microseconds, so a thread
// spins first, for as long as a busy neighbour may take the other's processor: one that sleeps
// sooner waits for its own processor next. Then it sleeps in the kernel.
class alignas(64) Counter {
 public:
  // Where the thread runs is still what it told last: a thread that begins its job late, because
  // the one that waits for it has its processor, could not tell anew.
  void reset() { count_.store(0); }

  // Tells where the thread runs that will raise this count.
  void locate() { processor_.store(processor(), std::memory_order_relaxed); }

  void raise() {
    locate();
    raise_among_others();
  }

  // The same by one of several threads that raise this count. Where it runs tells nothing of the
  // others. The one that waits may even be among them: it would find itself on the processor that
  // it waits for, and yield time slices for seconds before it sleeps.
  void raise_among_others() {
    delay_in_tests();
    count_.fetch_add(1);
    wake();
  }

  // The same by the only thread that raises this count. A thread that is about to sleep may miss
  // it, and wakes up a millisecond later; to exclude that would take longer than most waits.
  void raise_quickly() {
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    wake();
  }

  unsigned value() const { return count_.load(std::memory_order_acquire); }

  // Whether any thread sleeps until the count is raised.
  bool slept_for() const { return sleepers_.load() > 0; }

  // The count may be ahead of what is wanted, and it may wrap around. own: the waiting thread's
  // count, if it has one. Two threads that the system puts on one processor both wait for long at
  // once, so that it suffices to tell there where they run.
  void wait_for(unsigned wanted, int spins, Counter* own = nullptr) {
    wait_for(wanted, spins, own, [] {});
  }

  // meanwhile: called now and then by a thread that has slept.
  template <class Meanwhile>
  void wait_for(unsigned wanted, int spins, Counter* own, const Meanwhile& meanwhile) {
    spins = in_tests(spins);
    for (int i = 0; i < spins; ++i) {
      if (reached(wanted)) return;
      if (i % LOOKS == LOOKS - 1) {
        if (own) own->locate();
        if (on_its_processor()) std::this_thread::yield();
      }
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
    sleepers_.fetch_add(1);
    delay_in_tests();
    std::unique_lock<std::mutex> lock(mutex_);
    auto most = std::chrono::milliseconds(1);
    while (!raised_.wait_for(lock, most, [&] { return reached(wanted); })) {
      most = std::min(2 * most, std::chrono::milliseconds(128));
      lock.unlock();
      meanwhile();
      lock.lock();
    }
    sleepers_.fetch_sub(1);
  }

 private:
  std::atomic<unsigned> count_{0};
  std::atomic<int> processor_{-1}, sleepers_{0};
  std::mutex mutex_;
  std::condition_variable raised_;

  // Spins after which a wait takes longer than usual, and another look at the processors pays.
  static constexpr int LOOKS = 32;

  // Whether the thread that is waited for cannot run before this one lets it, as where the system
  // has put both on one processor because others are busy. It would notice milliseconds later.
  bool on_its_processor() const {
    const int its = processor_.load(std::memory_order_relaxed);
    return its >= 0 && its == processor();
  }

  void wake() {
    delay_in_tests();
    if (!slept_for()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    raised_.notify_all();
  }

  bool reached(unsigned wanted) const {
    return int(count_.load(std::memory_order_acquire) - wanted) >= 0;
  }
};

// One of the threads that share the work of a call.
struct Team {
  // One thread alone.
  Team() : index(0), size(1), arrivals_(nullptr) {}
  Team(int index, int size, Counter* arrivals) : index(index), size(size), arrivals_(arrivals) {}

  // Each thread sees afterwards what all threads did before. Each one counts its arrivals in a
  // cache line of its own, and reads the others' lines: a common counter would move more of them.
  void wait() const {
    if (size == 1) return;
    delay_in_tests();
    const unsigned phase = arrivals_[index].value() + 1;
    arrivals_[index].raise_quickly();
    for (int other = 0; other < size; ++other)
      if (other != index) arrivals_[other].wait_for(phase, SPINS, &arrivals_[index]);
  }

  // This thread's share of `count` things: [begin, end).
  int begin(int count) const { return int(long(count) * index / size); }
  int end(int count) const { return int(long(count) * (index + 1) / size); }

  const int index, size;

 private:
  static constexpr int SPINS = 100000;  // some milliseconds: a time slice

  Counter* arrivals_;  // (size)
};

// Threads that help the thread which made them, job after job. OpenMP's are not used: their waits
// take longer, and with a busy neighbour many times as long.
class Helpers {
 public:
  ~Helpers() { stop(); }

  // Calls body(team) on `threads` threads, of which this one is the first; on fewer, where the
  // system has no more for this process.
  template <class Body>
  void run(int threads, const Body& body) {
    fit(threads);
    share(threads, body);
  }

 private:
  // noexcept: the others have the body, until they are done.
  template <class Body>
  void share(int threads, const Body& body) noexcept {
    State& state = *state_;
    threads = std::min(threads, state.most);
    state.body = &body;
    state.call = [](const void* job, const Team& team) { (*static_cast<const Body*>(job))(team); };
    state.size = threads;
    for (int index = 0; index < threads; ++index) state.arrivals[index].reset();
    for (int index = 1; index < threads; ++index) {
      if (state.started[index].slept_for()) state.elsewhere[index].keep_away();
      state.started[index].raise();
    }
    state.arrivals[0].locate();
    body(Team(0, threads, state.arrivals.get()));
    for (int index = 1; index < threads; ++index)
      state.ended[index].wait_for(state.started[index].value(), SPINS);
  }

  // Between two calls the Python interpreter runs for up to a millisecond.
  static constexpr int SPINS = 60000;

  struct State {
    explicit State(int most)
        : wanted(most),
          most(most),
          process(getpid()),
          arrivals(new Counter[most]),
          started(new Counter[most]),
          ended(new Counter[most]),
          elsewhere(new Elsewhere[most]) {}

    const int wanted;
    int most;  // threads of any job: those that were wanted, or that the system gave
    const pid_t process;
    int size = 0;  // threads of the job; 0: they end
    const void* body = nullptr;
    void (*call)(const void*, const Team&) = nullptr;
    std::unique_ptr<Counter[]> arrivals, started, ended;
    std::unique_ptr<Elsewhere[]> elsewhere;
    std::vector<std::thread> threads;

    void serve(int index) {
      elsewhere[index].begin();
      for (unsigned job = 1;; ++job) {
        started[index].wait_for(job, SPINS);
        if (size == 0) return;
        elsewhere[index].release();
        arrivals[index].locate();
        ended[index].locate();
        call(body, Team(index, size, arrivals.get()));
        ended[index].raise();
      }
    }
  };
  std::unique_ptr<State> state_;

  // A forked process has its parent's memory, but not its threads.
  bool forked() const { return state_ && state_->process != getpid(); }

  void fit(int threads) {
    if (forked()) state_.release();
    if (state_ && state_->wanted >= threads) return;
    stop();
    state_.reset(new State(threads));
    try {
      state_->threads.reserve(threads - 1);
      for (int index = 1; index < threads; ++index)
        state_->threads.emplace_back(&State::serve, state_.get(), index);
    } catch (const std::system_error&) {  // a limit on processes or on memory for their stacks
      state_->most = 1 + int(state_->threads.size());
    } catch (...) {  // Those that there are end, or the next job would wait for the others.
      state_->most = 1 + int(state_->threads.size());
      stop();
      throw;
    }
  }

  void stop() {
    if (forked()) state_.release();
    if (!state_) return;
    state_->size = 0;
    for (int index = 1; index < state_->most; ++index) state_->started[index].raise();
    for (std::thread& thread : state_->threads) thread.join();
    state_.reset();
  }
};

// The calling thread's: not in the template below, which would have its own for each body.
static inline Helpers& helpers() {
  static thread_local Helpers own;
  return own;
}

// Threads that a call may have. With more of them than processors, each wait would last as long as
// the system lets others run first: a hundred times as long. Tests want many all the same.
static inline int most_threads() {
#ifdef SPECDEC_DELAYS
  return std::numeric_limits<int>::max();
#else
  static const int processors = std::max(1, int(std::thread::hardware_concurrency()));
  return processors;
#endif
}

// Of `threads`, those that gain more from a share of `products` multiply-adds than they lose in so
// many waits for one another. A wait takes a third of a microsecond, and more where the processors
// are far apart. Tests want all threads with their tiny models.
static inline int useful_threads(size_t products, int waits, int threads) {
#if defined(SPECDEC_DELAYS) || defined(__SANITIZE_ADDRESS__)
  return threads;
#else
  constexpr size_t EACH = 8192;  // between two waits, of a thread
  return int(std::clamp<size_t>(products / (waits * EACH), 1, threads));
#endif
}

// Calls body(team) on so many threads, as far as there are processors, and returns when all are
// done. On several threads it must not throw: the others might wait for one that is gone.
template <class Body>
void parallel(int threads, const Body& body) {
  threads = std::min(threads, most_threads());
  if (threads == 1) {
    body(Team());
  } else {
    helpers().run(threads, body);
  }
}

// Does `count` things of a call in parts of at most `most`. Each part is a Job of the thread that
// takes it, so that threads do not wait for each other; all threads share a part that is alone.
// Job: prepare(call, begin, end, threads), and then run(team) by all its threads.
template <class Job, class Call>
void in_parts(const Call& call, int count, int most, int threads) {
  static thread_local Job job;  // of each thread its own
  most = std::max(1, std::min(most, (count + threads - 1) / threads));
  if (count <= most) {
    job.prepare(call, 0, count, threads);
    parallel(threads, [&shared = job](const Team& team) { shared.run(team); });
    return;
  }
  std::atomic<int> next{0};
  Thrown thrown;
  parallel(threads, [&](const Team&) {
    thrown.keep([&] {
      for (int begin; (begin = next.fetch_add(most)) < count;) {
        job.prepare(call, begin, std::min(begin + most, count), 1);
        job.run(Team());
      }
    });
  });
  thrown.rethrow();
}

}  // namespace native
