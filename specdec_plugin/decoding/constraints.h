// What a row may not choose. The reference on PyTorch's operators is `Constraints` in
// constraints.py.
#pragma once

#include "interface.h"

namespace native {

// Whether a prefix may tell the token at a position.
static inline bool in_prefix(const ConstraintsCall& rules, int64_t position) {
  return position < rules.prefix_width && position < rules.max_len;
}

// The token of a prefix that a row has to continue with; -1: any.
static inline int64_t prefixed(const ConstraintsCall& rules, int64_t row, int64_t position) {
  if (!in_prefix(rules, position)) return -1;
  const int64_t token = rules.prefix[row * rules.prefix_width + position];
  return token == rules.suppressed_id ? -1 : token;
}

// Whether no end may come yet. fairseq does not apply the minimum to the columns of the prefix.
static inline bool ends_early(const ConstraintsCall& rules, int64_t position) {
  return position < rules.min_len && position >= rules.prefix_width;
}

}  // namespace native
