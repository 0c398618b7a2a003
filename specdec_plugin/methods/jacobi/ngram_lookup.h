// Drafts of Jacobi solvers, from symbols that were seen before. The reference in plain Python is
// ngram_lookup.py.
#pragma once

#include <algorithm>
#include <vector>

#include "decoding/iterations.h"

namespace native {

static inline double hit_rate(const NgramLookupCall& call, int origin) {
  return call.hits[origin] / call.tries[origin];
}

// An entry of the pool: what followed `order` symbols, and a tag that nearly identifies them.
class Entry {
 public:
  // Of the symbols that end before `end`.
  Entry(const NgramLookupCall& call, const int64_t* end, int order) {
    uint64_t hash = 0;
    for (const int64_t* symbol = end - order; symbol < end; ++symbol)
      hash = hash * HASH_FACTOR + uint64_t(*symbol);
    hash *= HASH_MIXER;
    entry_ = call.pool + (order - 1) * call.entries + ((hash >> 32) * uint64_t(call.entries) >> 32);
    tag_ = hash & UINT32_MAX;
  }

  // The symbol that followed, or -1.
  int64_t follower() const {
    return *entry_ >= 0 && *entry_ / POOL_SYMBOLS == tag_ ? *entry_ % POOL_SYMBOLS : -1;
  }

  void follow(int64_t symbol) { *entry_ = tag_ * POOL_SYMBOLS + symbol; }

 private:
  int64_t* entry_;
  int64_t tag_;
};

class NgramLookup {
 public:
  void draft(const NgramLookupCall& call) {
    for (int row = 0; row < call.rows.count; ++row) {
      // A row may have been decoded without drafts up to here.
      learn(call, row, call.judged[row]);
      call.judged[row] = call.rows.lengths[row];
      draft(call, row);
    }
  }

  // Learns which symbols follow which behind the first `known` ones of a row.
  static void learn(const NgramLookupCall& call, int row, int64_t known) {
    if (!call.pool) return;
    const int64_t* tokens = call.rows.tokens + size_t(row) * call.rows.capacity;
    for (int64_t position = known + 1; position <= call.rows.lengths[row]; ++position)
      for (int order = 1; order <= ORDERS && order <= position; ++order)
        Entry(call, tokens + position, order).follow(tokens[position]);
  }

  // Learns how the last draft turned out, which symbols follow which, and the argmax.
  void accept(const NgramLookupCall& call) const {
    const RowsCall& rows = call.rows;
    for (int row = 0; row < rows.count; ++row) {
      judge(call, row);
      learn(call, row, call.judged[row]);
      note(call, row);
      call.judged[row] = rows.lengths[row];
      call.draft_lengths[row] = 0;
    }
    for (int origin = 0; origin < ORIGINS; ++origin) {
      if (call.tries[origin] <= MEMORY) continue;
      call.tries[origin] /= 2;
      call.hits[origin] /= 2;
    }
  }

  // The same, from what a verification left.
  void accept(NgramLookupCall& call, const VerifyCall& verify) const {
    call.argmax = verify.argmax;
    call.argmax_width = verify.block + 1;
    accept(call);
  }

 private:
  struct Offer {
    int64_t token;
    int origin;
  };

  std::vector<int64_t> line_;  // the symbols of a row, then its draft

  void draft(const NgramLookupCall& call, int row) {
    const RowsCall& rows = call.rows;
    const int64_t length = rows.lengths[row], most = length + call.block + 1;
    const int64_t end = call.window > 0 ? (length / call.window + 1) * call.window : most;
    const int64_t wanted = std::min({end, most, call.until}) - length - 1;
    const int64_t* iterate = call.iterates + size_t(row) * call.positions;
    const int64_t* tokens = rows.tokens + size_t(row) * rows.capacity;
    const size_t first = size_t(row) * call.block;
    line_.assign(tokens, tokens + length + 1);
    double chance = 1;
    int count = 0;
    while (count < wanted) {
      const int64_t position = length + count;
      const Offer offer =
          best(call, row, {iterate[position], position < call.known[row] ? ITERATE : INITIAL});
      chance *= hit_rate(call, offer.origin);
      if (chance < call.confidence) break;
      call.draft[first + count] = offer.token;
      call.origins[first + count] = offer.origin;
      line_.push_back(offer.token);
      ++count;
      if (offer.token == call.eos) break;
    }
    call.draft_lengths[row] = count;
  }

  // The argmax of the positions from the judged length on.
  void note(const NgramLookupCall& call, int row) const {
    const int64_t* argmax = call.argmax + size_t(row) * call.argmax_width;
    int64_t* iterate = call.iterates + size_t(row) * call.positions;
    int64_t position = call.judged[row];
    for (int i = 0; i < call.argmax_width && argmax[i] >= 0 && position < call.positions; ++i)
      iterate[position++] = argmax[i];
    call.known[row] = position;
  }

  // The token whose origin was right most often so far.
  Offer best(const NgramLookupCall& call, int row, Offer found) const {
    auto consider = [&](const Offer& other) {
      if (other.token >= 0 && hit_rate(call, other.origin) > hit_rate(call, found.origin))
        found = other;
    };
    if (call.source) consider(longest_match(call, row));
    if (!call.pool) return found;
    const int seen = int(line_.size());
    for (int order = 1; order <= ORDERS && order <= seen; ++order)
      consider({Entry(call, line_.data() + seen, order).follower(), POOL + order - 1});
    return found;
  }

  // The symbol behind the longest match of the line's end in the source or the output; of several
  // the last one in the output, else in the source.
  Offer longest_match(const NgramLookupCall& call, int row) const {
    const RowsCall& rows = call.rows;
    int64_t token = -1;
    int longest = 1;
    auto search = [&](const int64_t* text, int size) {
      for (int next = 1; next < size; ++next) {
        const int most = std::min({next, int(line_.size()), LONGEST_MATCH});
        int match = 0;
        while (match < most && text[next - 1 - match] == line_[line_.size() - 1 - match]) ++match;
        if (match < longest || text[next] < 0) continue;
        longest = match;
        token = text[next];
      }
    };
    search(call.source + size_t(row) * call.source_length, call.source_length);
    search(rows.tokens + size_t(row) * rows.capacity + 1, int(rows.lengths[row]));
    return {token, MATCH + longest - 1};
  }

  // Counts drafted tokens up to the first wrong one, on which the later ones rest.
  void judge(const NgramLookupCall& call, int row) const {
    const RowsCall& rows = call.rows;
    const int64_t* tokens = rows.tokens + size_t(row) * rows.capacity + call.judged[row] + 1;
    const int64_t added = rows.lengths[row] - call.judged[row];
    for (int position = 0; position < call.draft_lengths[row] && position < added; ++position) {
      const size_t at = size_t(row) * call.block + position;
      const bool right = call.draft[at] == tokens[position];
      call.tries[call.origins[at]] += 1;
      call.hits[call.origins[at]] += right;
      if (!right) break;
    }
  }
};

extern "C" {

void ngram_lookup_draft(NgramLookup* lookup, const NgramLookupCall* call) { lookup->draft(*call); }

void ngram_lookup_accept(NgramLookup* lookup, const NgramLookupCall* call) {
  lookup->accept(*call);
}

void ngram_lookup_iterate(NgramLookup* lookup, NgramLookupCall* call, Verification* verification,
                          Stack* verifier, const Linear* projection, VerifyCall* verify,
                          Iterations* iterations, int threads) {
  const auto draft = [=] {
    lookup->draft(*call);
    return true;
  };
  const auto learn = [=] { lookup->accept(*call, *verify); };
  iterate({verification, verifier, projection, verify, threads}, *iterations, draft, learn);
}

void ngram_lookup_learn(const NgramLookupCall* call) {
  for (int row = 0; row < call->rows.count; ++row) NgramLookup::learn(*call, row, 0);
}

}  // extern "C"

}  // namespace native
