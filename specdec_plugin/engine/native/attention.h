// Softmax attention of one query, over keys and values that lie at a fixed distance.
#pragma once

#include "vector.h"

namespace native {

// Keys or values of one head of one sentence: slot s begins at `first + s * stride`.
struct Slots {
  const float* first;
  size_t stride;
};

// out = softmax(scale * query · keys + mask) · values, over the slots 0 … count-1.
// mask: (count) added to the scores, or null. scores: scratch, count rounded up to LANES.
static inline void attend(const float* query, float scale, Slots keys, Slots values, int count,
                          const float* mask, int dim, float* scores, float* out) {
  for (int slot = 0; slot < count; ++slot) {
    scores[slot] = scale * dot(query, keys.first + slot * keys.stride, dim);
    if (mask) scores[slot] += mask[slot];
  }
  const Exponentials weights = exponentials(scores, count);
  std::memset(out, 0, sizeof(float) * dim);
  for (int slot = 0; slot < count; ++slot)
    add_scaled(out, scores[slot] / weights.sum, values.first + slot * values.stride, dim);
}

}  // namespace native
