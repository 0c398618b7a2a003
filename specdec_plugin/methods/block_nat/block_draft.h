// A draft of the block-NAT model.
#pragma once

#include "decoding/iterations.h"
#include "engine/native/stack.h"
#include "methods/block_nat/chain.h"

namespace native {

// Feeds the new tokens of each row and `block` masks behind them, and chooses the tokens at the
// masks.
class BlockDraft {
 public:
  void run(const Stack& stack, Chain& chain, const BlockDraftCall& call, int threads) {
    const RowsCall& rows = call.rows;
    counts_.resize(rows.count);
    last_.resize(rows.count);
    int most = 0;
    for (int row = 0; row < rows.count; ++row) {
      counts_[row] = rows.lengths[row] + 1 - call.fed[row];
      last_[row] = rows.tokens[size_t(row) * rows.capacity + rows.lengths[row]];
      most = std::max(most, int(counts_[row]));
    }
    grow(hidden_, size_t(rows.count) * call.block * stack.dim);
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
    threads = stack.useful_threads(nullptr, inputs.rows * inputs.width, threads);
    pass_.prepare(stack, inputs, threads);
    chain.prepare(choices, threads);
    parallel(threads, [&](const Team& team) {
      pass_.run(team, inputs);
      team.wait();
      chain.run(team, choices);
    });
    for (int row = 0; row < rows.count; ++row) call.fed[row] = rows.lengths[row] + 1;
  }

  // Whether one more draft of the only row fits into its cache and positions.
  static bool has_room(const BlockDraftCall& call) {
    return VerificationRun::holds(call.stack, call.rows.lengths[0] + 1 + call.block);
  }

 private:
  Pass pass_;
  std::vector<int64_t> counts_, last_;
  Aligned<float> hidden_;
};

extern "C" void block_draft_run(BlockDraft* block_draft, Stack* stack, Chain* chain,
                                const BlockDraftCall* call, int threads) {
  block_draft->run(*stack, *chain, *call, threads);
}

extern "C" void block_draft_iterate(BlockDraft* block_draft, Stack* stack, Chain* chain,
                                    const BlockDraftCall* call, Verification* verification,
                                    Stack* verifier, const Linear* projection, VerifyCall* verify,
                                    Iterations* iterations, int threads) {
  const auto draft = [=] {
    if (iterations->done > 0 && !BlockDraft::has_room(*call)) return false;
    block_draft->run(*stack, *chain, *call, threads);
    return true;
  };
  iterate({verification, verifier, projection, verify, threads}, *iterations, draft, [] {});
}

}  // namespace native
