// Drafts that copy the source (Ge et al., 2022, Algorithm 1). The reference in plain Python is
// source_copy.py.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "interface.h"

namespace native {

// Lengthens the matches of a row by the tokens that were added to it.
static inline void follow(const SourceCopyCall& call, int row) {
  const int length = call.source_length;
  const int64_t* source = call.source + size_t(row) * length;
  int64_t* matches = call.matches + size_t(row) * (length + 1);
  const int64_t* tokens = call.rows.tokens + size_t(row) * call.rows.capacity + 1;
  for (; call.matched[row] < call.rows.lengths[row]; ++call.matched[row]) {
    const int64_t token = tokens[call.matched[row]];
    for (int next = length; next > 0; --next)
      matches[next] = source[next - 1] == token ? matches[next - 1] + 1 : 0;
    matches[0] = 0;
  }
}

// The position behind the only longest match; the end of the source if there is none.
static inline int after_match(const SourceCopyCall& call, int row) {
  const int64_t* matches = call.matches + size_t(row) * (call.source_length + 1);
  const int64_t* end = matches + call.source_length + 1;
  const int64_t* most = std::max_element(matches, end);
  const bool follows = *most > 0 && std::count(matches, end, *most) == 1;
  return follows ? int(most - matches) : call.source_length;
}

// The position behind the longest match, of several the one nearest to `replacing`. There the
// source continues if each chosen symbol replaced one of its own. The result is `replacing` too
// if nothing matches but single symbols further than `near` from it.
static inline int near_match(const SourceCopyCall& call, int row, int64_t replacing) {
  const int length = call.source_length;
  const int64_t* matches = call.matches + size_t(row) * (length + 1);
  const int64_t most = *std::max_element(matches, matches + length + 1);
  int64_t found = -1, limit = most > 1 ? INT64_MAX : most > 0 ? call.near + 1 : 0;
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
  for (int row = 0; row < call.rows.count; ++row) {
    const int64_t replacing = call.starts[row] + call.rows.lengths[row] - call.matched[row];
    follow(call, row);
    const int begin =
        call.follow_nearest ? near_match(call, row, replacing) : after_match(call, row);
    call.starts[row] = begin;
    const int64_t* source = call.source + size_t(row) * call.source_length;
    int64_t* draft = call.draft + size_t(row) * call.block;
    int count = 0;
    for (int position = begin; position < call.source_length; ++position) {
      if (count == call.block || source[position] < 0) break;
      draft[count++] = source[position];
      if (source[position] == call.eos) break;
    }
    call.draft_lengths[row] = count;
  }
}

}  // namespace native
