// A block of the trained drafter: feeds what is new of each row, and chooses the tokens at the masks.
#pragma once

#include "decoding/rows.h"
#include "engine/native/stack.h"
#include "methods/block_nat/chain.h"

namespace native {

struct Proposal {
  Rows rows;
  Call call;  // of the drafter's decoder: positions, cache and source
  int block;
  int never;              // a symbol that is not drafted
  float floor;            // see `Links`
  int64_t* fed;           // (count) inputs in the cache; afterwards all that there are
  int64_t* draft;         // (count, block) what comes of it, rubbish beyond the lengths
  int64_t* draft_lengths; // (count)
};

// Feeds what is new of each row and `block` masks behind it, and chooses the tokens there.
class Proposer {
 public:
  void run(Stack& stack, Chain& chain, const Proposal& proposal, int threads) {
    const Rows& rows = proposal.rows;
    counts_.resize(rows.count);
    last_.resize(rows.count);
    int most = 0;
    for (int row = 0; row < rows.count; ++row) {
      counts_[row] = rows.lengths[row] + 1 - proposal.fed[row];
      last_[row] = rows.tokens[size_t(row) * rows.room + rows.lengths[row]];
      most = std::max(most, int(counts_[row]));
    }
    states_.resize(size_t(rows.count) * proposal.block * stack.dim);
    Call call = proposal.call;
    call.rows = rows.count;
    call.width = most + proposal.block;
    call.tokens = rows.tokens;
    call.token_stride = rows.room;
    call.behind = 1;
    call.counts = counts_.data();
    call.block = proposal.block;
    call.starts = proposal.fed;
    call.out = states_.data();
    const Links links = {rows.count,     proposal.block, states_.data(), last_.data(),
                         proposal.never, proposal.floor, proposal.draft, proposal.draft_lengths};
    stack.prepare(call, threads);
    chain.prepare(links, threads);
    Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
    {
      const Team team(barrier);
      stack.run(team, call);
      team.wait();
      chain.run(team, links);
    }
    for (int row = 0; row < rows.count; ++row) proposal.fed[row] = rows.lengths[row] + 1;
  }

 private:
  std::vector<int64_t> counts_, last_;
  std::vector<float> states_;
};

}  // namespace native
