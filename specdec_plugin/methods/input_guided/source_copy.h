// Drafts that copy the source (Ge et al., 2022, Algorithm 1). The reference in plain Python is
// source_copy.py.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "interface.h"

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

extern "C" void source_copy_draft(const SourceCopyCall* pointer) {
  const SourceCopyCall& call = *pointer;
  const int length = call.source_length;
  for (int row = 0; row < call.rows.count; ++row) {
    const int64_t replacing = call.starts[row] + call.rows.lengths[row] - call.matched[row];
    const int64_t* source = call.source + size_t(row) * length;
    const int64_t* tokens = call.rows.tokens + size_t(row) * call.rows.capacity + 1;
    int64_t* matches = call.matches + size_t(row) * (length + 1);
    for (; call.matched[row] < call.rows.lengths[row]; ++call.matched[row])
      follow(source, length, matches, tokens[call.matched[row]]);
    const int begin = call.follow_nearest ? near_match(matches, length, call.near, replacing)
                                          : after_match(matches, length);
    call.starts[row] = begin;
    int64_t* draft = call.draft + size_t(row) * call.block;
    int count = 0;
    for (int position = begin; position < length; ++position) {
      if (count == call.block || source[position] < 0) break;
      draft[count++] = source[position];
      if (source[position] == call.eos) break;
    }
    call.draft_lengths[row] = count;
  }
}

// A place in a source, which moves with each token of the output.
struct SourcePlace {
  const int64_t* source;
  int length, near;
  int64_t* matches;
  int64_t place;

  void move(int64_t token) {
    follow(source, length, matches, token);
    place = near_match(matches, length, near, place + 1);
  }

  int64_t next() const { return place < length ? source[place] : -1; }
};

extern "C" void source_next_after(const SourceNextCall* pointer) {
  const SourceNextCall& call = *pointer;
  const int length = call.source_length;
  std::vector<int64_t> drafted(length + 1);  // the matches behind drafted tokens
  for (int row = 0; row < call.rows.count; ++row) {
    int64_t* matches = call.matches + size_t(row) * (length + 1);
    const int64_t* tokens = call.rows.tokens + size_t(row) * call.rows.capacity + 1;
    SourcePlace at{call.source + size_t(row) * length, length, call.near, matches,
                   call.places[row]};
    for (; call.matched[row] < call.rows.lengths[row]; ++call.matched[row])
      at.move(tokens[call.matched[row]]);
    call.places[row] = at.place;
    std::copy(matches, matches + length + 1, drafted.begin());
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
