// Guesses of tokens to come from what was seen before: a Jacobi solver's drafts. What this does is
// what specdec_plugin/decoding/guesses.py does on PyTorch's operators, which is the reference.
#pragma once

#include <algorithm>

#include "decoding/rows.h"

namespace native {

// Where a guess comes from; matches of three lengths and more, and n-grams of three orders, are
// sources of their own.
enum Origin { INITIAL = 0, ITERATE = 1, MATCH = 2, POOL = 6, ORIGINS = 9 };

struct Guessing {
  Rows rows;       // with an iterate
  int block;       // most guesses a row
  int size;        // b of blocks that follow each other; 0: as many guesses everywhere
  double floor;    // guesses end where the chance that all of them are right falls below this
  int64_t until;   // places from here on are not guessed
  int64_t eos;     // nothing is guessed behind it
  const int64_t* source;  // (count, source_length) -1 where no symbol of the output; or null
  int source_length;
  int64_t* pool;          // (ORDERS, entries) `Entry` or -1; or null
  int64_t entries;
  double* tries;          // (ORIGINS) how often a guess of each origin was judged,
  double* hits;           // (ORIGINS) and how often it was right
  int64_t* known;         // (count) places that the iterate speaks of; later ones are initial
  int64_t* before;        // (count) lengths when the draft was made
  int64_t* draft;         // (count, block) what comes of it, rubbish beyond the lengths
  int64_t* origins;       // (count, block)
  int64_t* draft_lengths; // (count)

  double rate(int origin) const { return hits[origin] / tries[origin]; }

};

// An entry of the pool: what followed `order` symbols. It also says which symbols, nearly.
class Entry {
 public:
  // Of the symbols that end before `end`.
  Entry(const Guessing& call, const int64_t* end, int order) {
    int64_t hash = 0;
    for (const int64_t* symbol = end - order; symbol < end; ++symbol) hash = hash * 1000003 + *symbol;
    place_ = call.pool + (order - 1) * call.entries + hash % call.entries;
    tag_ = hash / call.entries % TAGS;
  }

  // -1 if nothing is known of them.
  int64_t follower() const {
    return *place_ >= 0 && *place_ / SYMBOLS == tag_ ? *place_ % SYMBOLS : -1;
  }

  void follow(int64_t symbol) { *place_ = tag_ * SYMBOLS + symbol; }

 private:
  static constexpr int64_t SYMBOLS = int64_t(1) << 24, TAGS = int64_t(1) << 32;

  int64_t* place_;
  int64_t tag_;
};

class Guesser {
 public:
  // Learns how the last draft turned out, and makes the next one.
  void guess(const Guessing& call) {
    learn(call);
    for (int row = 0; row < call.rows.count; ++row) guess(call, row);
  }

  // Notes which origins were right since the last draft was made, and what follows what.
  void learn(const Guessing& call) const {
    const Rows& rows = call.rows;
    for (int row = 0; row < rows.count; ++row) {
      judge(call, row);
      const int64_t* tokens = rows.tokens + size_t(row) * rows.room;
      for (int64_t place = call.before[row] + 1; call.pool && place <= rows.lengths[row]; ++place)
        for (int order = 1; order <= ORDERS && order <= place; ++order)
          Entry(call, tokens + place, order).follow(tokens[place]);
      call.before[row] = rows.lengths[row];
      call.draft_lengths[row] = 0;
    }
    for (int origin = 0; origin < ORIGINS; ++origin) {
      if (call.tries[origin] <= MEMORY) continue;
      call.tries[origin] /= 2;
      call.hits[origin] /= 2;
    }
  }

 private:
  static constexpr int LONGEST_MATCH = 4, ORDERS = 3;
  static constexpr double MEMORY = 500;

  struct Guess {
    int64_t token;
    int origin;
  };

  std::vector<int64_t> line_;  // the symbols of a row, then its guesses

  void guess(const Guessing& call, int row) {
    const Rows& rows = call.rows;
    const int64_t length = rows.lengths[row], most = length + call.block + 1;
    const int64_t end = call.size > 0 ? (length / call.size + 1) * call.size : most;
    const int64_t wanted = std::min({end, most, call.until}) - length - 1;
    const int64_t* iterate = rows.iterate + size_t(row) * rows.iterate_room;
    const int64_t* tokens = rows.tokens + size_t(row) * rows.room;
    const size_t first = size_t(row) * call.block;
    line_.assign(tokens, tokens + length + 1);
    double chance = 1;
    int count = 0;
    while (count < wanted) {
      const int64_t place = length + count;
      const Guess guess = best(call, row, {iterate[place], place < call.known[row] ? ITERATE : INITIAL});
      chance *= call.rate(guess.origin);
      if (chance < call.floor) break;
      call.draft[first + count] = guess.token;
      call.origins[first + count] = guess.origin;
      line_.push_back(guess.token);
      ++count;
      if (guess.token == call.eos) break;
    }
    call.draft_lengths[row] = count;
    call.before[row] = length;
    call.known[row] = length + count + 1;
  }

  // The guess whose origin was right most often so far.
  Guess best(const Guessing& call, int row, Guess found) const {
    auto consider = [&](const Guess& other) {
      if (other.token >= 0 && call.rate(other.origin) > call.rate(found.origin)) found = other;
    };
    if (call.source) consider(longest_match(call, row));
    if (!call.pool) return found;
    const int seen = int(line_.size());
    for (int order = 1; order <= ORDERS && order <= seen; ++order)
      consider({Entry(call, line_.data() + seen, order).follower(), POOL + order - 1});
    return found;
  }

  // What follows the longest end of the line that the source or the output has too; of several,
  // the last in the output, else in the source.
  Guess longest_match(const Guessing& call, int row) const {
    const Rows& rows = call.rows;
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
    search(rows.tokens + size_t(row) * rows.room + 1, int(rows.lengths[row]));
    return {token, MATCH + longest - 1};
  }

  // Guesses count up to the first that is wrong: what the later ones rest on is wrong too.
  void judge(const Guessing& call, int row) const {
    const Rows& rows = call.rows;
    const int64_t* tokens = rows.tokens + size_t(row) * rows.room + call.before[row] + 1;
    const int64_t added = rows.lengths[row] - call.before[row];
    for (int place = 0; place < call.draft_lengths[row] && place < added; ++place) {
      const size_t at = size_t(row) * call.block + place;
      const bool right = call.draft[at] == tokens[place];
      call.tries[call.origins[at]] += 1;
      call.hits[call.origins[at]] += right;
      if (!right) break;
    }
  }
};

}  // namespace native
