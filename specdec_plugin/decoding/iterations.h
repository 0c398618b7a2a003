// Drafting and verifying again and again, without a return to Python in between.
#pragma once

#include <algorithm>
#include <chrono>

#include "decoding/verify.h"

namespace native {

// Who verifies, and what `verification_run` takes.
struct VerificationRun {
  Verification* verification;
  const Stack* stack;
  const Linear* projection;
  VerifyCall* call;
  int threads;

  // Whether so many inputs of a row fit into a cache and its positions.
  static bool holds(const StackCall& stack, int64_t inputs) {
    return inputs <= stack.capacity && (!stack.positions || inputs <= stack.position_limit);
  }

  // Whether one more draft fits into the tokens, the cache and the positions. None is longer than
  // the shortest row has room for up to the length limit.
  bool has_room() const {
    const RowsCall& rows = call->rows;
    const auto [shortest, longest] = std::minmax_element(rows.lengths, rows.lengths + rows.count);
    const int64_t drafted = std::min<int64_t>(call->block, call->rules.max_len - *shortest);
    const int64_t end = *longest + 1 + drafted;
    return end < rows.capacity && holds(call->stack, end) &&
           std::all_of(
               call->others, call->others + call->other_models,
               [=](const ModelCall& other) { return holds(other.stack, end); });
  }

  // Whether a row has ended.
  bool any_ended() const {
    return std::find(call->ended, call->ended + call->rows.count, 1) !=
           call->ended + call->rows.count;
  }
};

// Ends with a sentence, after so many times or seconds, or where room has to be made first. There
// is room for the first time.
//
// draft: writes the next draft. It returns false where it has no room for one.
// learn: is told that a draft was verified.
template <class Draft, class Learn>
void iterate(const VerificationRun& verifier, Iterations& iterations, const Draft& draft,
             const Learn& learn) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const VerifyCall& call = *verifier.call;
  const int rows = call.rows.count;
  const auto first = Clock::now();
  do {
    const auto begin = Clock::now();
    if (!draft()) break;
    iterations.draft_seconds += Seconds(Clock::now() - begin).count();
    verifier.verification->run(*verifier.stack, verifier.projection, *verifier.call,
                               verifier.threads);
    learn();
    iterations.scoring_seconds += call.scoring_seconds;
    iterations.certified += call.certified;
    iterations.certain += call.certain;
    iterations.rescored += call.rescored;
    const size_t done = size_t(rows) * iterations.done++, all = size_t(rows) * iterations.most;
    std::copy_n(call.drafted, rows, iterations.counts + done);
    std::copy_n(call.kept, rows, iterations.counts + all + done);
    std::copy_n(call.added, rows, iterations.counts + 2 * all + done);
  } while (!verifier.any_ended() && iterations.done < iterations.most &&
           Seconds(Clock::now() - first).count() < iterations.seconds && verifier.has_room());
}

// Without drafts.
extern "C" void verification_iterate(Verification* verification, Stack* stack,
                                     const Linear* projection, VerifyCall* call,
                                     Iterations* iterations, int threads) {
  iterate(
      {verification, stack, projection, call, threads}, *iterations, [] { return true; }, [] {});
}

}  // namespace native
