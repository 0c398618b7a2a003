// Drafts that copy the source (paper 002, Algorithm 1). What this does is what
// specdec_plugin/decoding/copies.py does on PyTorch's operators, which is the reference.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "decoding/rows.h"

namespace native {

struct Copying {
  Rows rows;
  int block;              // most tokens of a draft
  int longest;            // 1: follow the nearest of several matches, too, and go on without any
  int near;               // how far away a match of a single symbol may be then
  int64_t eos;            // nothing is drafted behind it
  const int64_t* source;  // (count, source_length) -1 where no symbol of the output
  int source_length;
  int64_t* matches;        // (count, source_length + 1) how many symbols before each place of the
                           // source are the last ones of the output
  int64_t* seen;           // (count) tokens that the matches know of
  int64_t* places;         // (count) where the last draft began in the source
  int64_t* draft;          // (count, block) what comes of it, rubbish beyond the lengths
  int64_t* draft_lengths;  // (count)
};

// Follows what was added to a row, token by token.
static inline void follow(const Copying& call, int row) {
  const int length = call.source_length;
  const int64_t* source = call.source + size_t(row) * length;
  int64_t* matches = call.matches + size_t(row) * (length + 1);
  const int64_t* tokens = call.rows.tokens + size_t(row) * call.rows.room + 1;
  for (; call.seen[row] < call.rows.lengths[row]; ++call.seen[row]) {
    const int64_t token = tokens[call.seen[row]];
    for (int next = length; next > 0; --next)
      matches[next] = source[next - 1] == token ? matches[next - 1] + 1 : 0;
    matches[0] = 0;
  }
}

// Where the source goes on after the only longest match; its end if there is none.
static inline int after_match(const Copying& call, int row) {
  const int64_t* matches = call.matches + size_t(row) * (call.source_length + 1);
  const int64_t* end = matches + call.source_length + 1;
  const int64_t* most = std::max_element(matches, end);
  const bool follows = *most > 0 && std::count(matches, end, *most) == 1;
  return follows ? int(most - matches) : call.source_length;
}

// Where it goes on after the longest match, of several the nearest to `replacing`: there it goes
// on if each chosen symbol replaced one of the source, or if nothing matches but single symbols
// that are far away.
static inline int near_match(const Copying& call, int row, int64_t replacing) {
  const int length = call.source_length;
  const int64_t* matches = call.matches + size_t(row) * (length + 1);
  const int64_t most = *std::max_element(matches, matches + length + 1);
  int64_t found = -1, least = most > 1 ? INT64_MAX : most > 0 ? call.near + 1 : 0;
  for (int place = 0; place <= length; ++place) {
    const int64_t apart = std::abs(place - replacing);
    if (matches[place] != most || apart >= least) continue;
    found = place;
    least = apart;
  }
  return int(found >= 0 ? found : std::min<int64_t>(replacing, length));
}

static inline void copy(const Copying& call) {
  for (int row = 0; row < call.rows.count; ++row) {
    const int64_t replacing = call.places[row] + call.rows.lengths[row] - call.seen[row];
    follow(call, row);
    const int begin = call.longest ? near_match(call, row, replacing) : after_match(call, row);
    call.places[row] = begin;
    const int64_t* source = call.source + size_t(row) * call.source_length;
    int64_t* draft = call.draft + size_t(row) * call.block;
    int count = 0;
    for (int place = begin; place < call.source_length; ++place) {
      if (count == call.block || source[place] < 0) break;
      draft[count++] = source[place];
      if (source[place] == call.eos) break;
    }
    call.draft_lengths[row] = count;
  }
}

}  // namespace native
