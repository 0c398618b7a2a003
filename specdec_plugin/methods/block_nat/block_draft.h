// A draft of the block-NAT model.
#pragma once

#include <chrono>

#include "decoding/verify.h"
#include "engine/native/stack.h"
#include "methods/block_nat/chain.h"

namespace native {

// Feeds the new tokens of each row and `block` masks behind them, and chooses the tokens at the
// masks.
class BlockDraft {
 public:
  void run(const Stack& stack, Chain& chain, const BlockDraftCall& call, int threads) {
    const Rows& rows = call.rows;
    counts_.resize(rows.count);
    last_.resize(rows.count);
    int most = 0;
    for (int row = 0; row < rows.count; ++row) {
      counts_[row] = rows.lengths[row] + 1 - call.fed[row];
      last_[row] = rows.tokens[size_t(row) * rows.capacity + rows.lengths[row]];
      most = std::max(most, int(counts_[row]));
    }
    hidden_.resize(size_t(rows.count) * call.block * stack.dim);
    StackCall inputs = call.stack;
    inputs.rows = rows.count;
    inputs.width = most + call.block;
    inputs.tokens = rows.tokens;
    inputs.token_stride = rows.capacity;
    inputs.from_starts = 1;
    inputs.counts = counts_.data();
    inputs.block = call.block;
    inputs.starts = call.fed;
    inputs.out = hidden_.data();
    ChainCall choices;
    choices.rows = rows.count;
    choices.block = call.block;
    choices.hidden = hidden_.data();
    choices.last = last_.data();
    choices.suppressed_id = call.suppressed_id;
    choices.confidence = call.confidence;
    choices.sampling = rows.sampling;
    choices.tokens = call.draft;
    choices.lengths = call.draft_lengths;
    pass_.prepare(stack, inputs, threads);
    chain.prepare(choices, threads);
    parallel(threads, [&](const Team& team) {
      pass_.run(team, inputs);
      team.wait();
      chain.run(team, choices);
    });
    for (int row = 0; row < rows.count; ++row) call.fed[row] = rows.lengths[row] + 1;
  }

  // Drafts for the only row and verifies the draft, again and again. It ends with the sentence,
  // after so many times or seconds, or where room has to be made first. There is room for the
  // first time.
  template <class Verify>
  void iterate(const Stack& stack, Chain& chain, const BlockDraftCall& call,
               const Verify& run_verify, const VerifyCall& verify, BlockIterations& iterations,
               int threads) {
    iterations.done = 0;
    iterations.draft_seconds = iterations.scoring_seconds = 0;
    std::chrono::duration<double> passed;
    const auto first = std::chrono::steady_clock::now();
    do {
      const auto begin = std::chrono::steady_clock::now();
      run(stack, chain, call, threads);
      const std::chrono::duration<double> drafting = std::chrono::steady_clock::now() - begin;
      run_verify();
      iterations.draft_seconds += drafting.count();
      iterations.scoring_seconds += verify.scoring_seconds;
      int64_t* counts = iterations.counts + 3 * iterations.done++;
      counts[0] = verify.drafted[0];
      counts[1] = verify.kept[0];
      counts[2] = verify.added[0];
      passed = std::chrono::steady_clock::now() - first;
    } while (!verify.ended[0] && iterations.done < iterations.most &&
             passed.count() < iterations.seconds && has_room(call, verify));
  }

 private:
  // Whether one more draft of the only row fits into its tokens, both caches and the positions.
  static bool has_room(const BlockDraftCall& call, const VerifyCall& verify) {
    const auto holds = [](const StackCall& stack, int64_t inputs) {
      return inputs <= stack.capacity && (!stack.positions || inputs <= stack.position_limit);
    };
    const int64_t end = call.rows.lengths[0] + 1 + call.block;
    return end < call.rows.capacity && holds(call.stack, end) && holds(verify.stack, end);
  }

  Pass pass_;
  std::vector<int64_t> counts_, last_;
  std::vector<float> hidden_;
};

extern "C" void block_draft_run(BlockDraft* block_draft, Stack* stack, Chain* chain,
                                const BlockDraftCall* call, int threads) {
  block_draft->run(*stack, *chain, *call, threads);
}

extern "C" void block_draft_iterate(BlockDraft* block_draft, Stack* stack, Chain* chain,
                                    BlockDraftCall* call, Verification* verification,
                                    Stack* verifier, const Linear* projection, VerifyCall* verify,
                                    BlockIterations* iterations, int threads) {
  block_draft->iterate(
      *stack, *chain, *call, [=] { verification->run(*verifier, projection, *verify, threads); },
      *verify, *iterations, threads);
}

}  // namespace native
