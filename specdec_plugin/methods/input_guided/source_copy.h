// Drafts that copy the source (Ge et al., 2022, Algorithm 1). The reference in plain Python is
// source_copy.py.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "decoding/iterations.h"

namespace native {

// Lengthens the matches of a row by a token that was added to it.
static inline void follow(const int64_t* source, int length, int64_t* matches, int64_t token) {
  for (int next = length; next > 0; --next)
    matches[next] = source[next - 1] == token ? matches[next - 1] + 1 : 0;
  matches[0] = 0;
}

// The position behind the only longest match; the end of the source if there is none.
static inline int after_match(const int64_t* matches, int length) {
  const int64_t* end = matches + length + 1;
  const int64_t* most = std::max_element(matches, end);
  const bool follows = *most > 0 && std::count(matches, end, *most) == 1;
  return follows ? int(most - matches) : length;
}

// The position behind the longest match, of several the one nearest to `replacing`. There the
// source continues if each chosen symbol replaced one of its own. The result is `replacing` too
// if nothing matches but single symbols further than `near` from it.
static inline int near_match(const int64_t* matches, int length, int near, int64_t replacing) {
  const int64_t most = *std::max_element(matches, matches + length + 1);
  int64_t found = -1, limit = most > 1 ? INT64_MAX : most > 0 ? near + 1 : 0;
  for (int position = 0; position <= length; ++position) {
    const int64_t distance = std::abs(position - replacing);
    if (matches[position] != most || distance >= limit) continue;
    found = position;
    limit = distance;
  }
  return int(found >= 0 ? found : std::min<int64_t>(replacing, length));
}

// One row of SourceMatchesCall.
struct SourceRow {
  SourceRow(const SourceMatchesCall& call, int row)
      : source(call.symbols + size_t(row) * call.length),
        length(call.length),
        near(call.near),
        matches(call.matches + size_t(row) * (call.length + 1)),
        position(call.positions[row]) {}

  // Moves to where the source continues behind a token of the output.
  void move(int64_t token) {
    follow(source, length, matches, token);
    position = near_match(matches, length, near, position + 1);
  }

  int64_t next() const { return position < length ? source[position] : -1; }

  const int64_t* source;
  int length, near;
  int64_t* matches;
  int64_t position;
};

extern "C" void source_copy_draft(const SourceCopyCall* pointer) {
  const SourceCopyCall& call = *pointer;
  const int length = call.source.length;
  for (int row = 0; row < call.rows.count; ++row) {
    const SourceRow at(call.source, row);
    int64_t& matched = call.source.matched[row];
    const int64_t replacing = at.position + call.rows.lengths[row] - matched;
    const int64_t* tokens = call.rows.tokens + size_t(row) * call.rows.capacity + 1;
    for (; matched < call.rows.lengths[row]; ++matched)
      follow(at.source, length, at.matches, tokens[matched]);
    const int begin = call.follow_nearest ? near_match(at.matches, length, at.near, replacing)
                                          : after_match(at.matches, length);
    call.source.positions[row] = begin;
    int64_t* draft = call.draft + size_t(row) * call.block;
    int count = 0;
    for (int position = begin; position < length; ++position) {
      if (count == call.block || at.source[position] < 0) break;
      draft[count++] = at.source[position];
      if (at.source[position] == call.eos) break;
    }
    call.draft_lengths[row] = count;
  }
}

extern "C" void source_copy_iterate(const SourceCopyCall* call, Verification* verification,
                                    Stack* verifier, const Linear* projection, VerifyCall* verify,
                                    Iterations* iterations, int threads) {
  const auto draft = [=] {
    source_copy_draft(call);
    return true;
  };
  iterate({verification, verifier, projection, verify, threads}, *iterations, draft, [] {});
}

extern "C" void source_next_after(const SourceNextCall* pointer) {
  const SourceNextCall& call = *pointer;
  const int length = call.source.length;
  std::vector<int64_t> drafted(length + 1);  // the matches behind drafted tokens
  for (int row = 0; row < call.rows.count; ++row) {
    SourceRow at(call.source, row);
    int64_t& matched = call.source.matched[row];
    const int64_t* tokens = call.rows.tokens + size_t(row) * call.rows.capacity + 1;
    for (; matched < call.rows.lengths[row]; ++matched) at.move(tokens[matched]);
    call.source.positions[row] = at.position;
    std::copy(at.matches, at.matches + length + 1, drafted.begin());
    at.matches = drafted.data();
    const int64_t* draft = call.draft + size_t(row) * call.block;
    int64_t* next = call.next + size_t(row) * (call.block + 1);
    std::fill(next, next + call.block + 1, int64_t(-1));
    next[0] = at.next();
    for (int i = 0; i < call.draft_lengths[row]; ++i) {
      at.move(draft[i]);
      next[i + 1] = at.next();
    }
  }
}

}  // namespace native
