// Softmax attention of one query to keys and values that follow each other at a fixed distance.
#pragma once

#include "engine/native/vector.h"

namespace native {

// Keys or values of one head of one sentence: slot s begins at `first + s * stride`.
struct Slots {
  const float* first;
  size_t stride;

  const float* at(int slot) const { return first + slot * stride; }
};

// The same where every slot lies in a row of its own: slot s is that of row `rows[s]`.
struct SharedSlots {
  const float* first;  // of slot 0 in row 0
  size_t stride, row_stride;
  const int64_t* rows;

  const float* at(int slot) const { return first + rows[slot] * row_stride + slot * stride; }
};

// The sums of attention, for heads of any size.
struct AnyHead {
  template <class Keys>
  static void scores(const float* query, Keys keys, int count, int dim, float* out) {
    for (int slot = 0; slot < count; ++slot) out[slot] = dot(query, keys.at(slot), dim);
  }

  template <class Values>
  static void mix(const float* weights, Values values, int count, int dim, float* out) {
    std::memset(out, 0, sizeof(float) * dim);
    for (int slot = 0; slot < count; ++slot) add_scaled(out, weights[slot], values.at(slot), dim);
  }
};

// The sums for heads of N vectors. Registers hold the query or the sums.
template <int N>
struct Head {
  template <class Keys>
  static void scores(const float* query, Keys keys, int count, int, float* out) {
    constexpr int AT_ONCE = 4;  // so that no sum waits for another
    Vec parts[N];
    for (int n = 0; n < N; ++n) parts[n] = load(query + n * LANES);
    const int whole = count - count % AT_ONCE;
    for (int slot = 0; slot < whole; slot += AT_ONCE) {
      Vec totals[AT_ONCE] = {};
      for (int n = 0; n < N; ++n)
        for (int i = 0; i < AT_ONCE; ++i)
          totals[i] += parts[n] * load(keys.at(slot + i) + n * LANES);
      store_sums(out + slot, totals);
    }
    if (whole == count) return;
    Vec totals[AT_ONCE] = {};
    for (int i = 0; whole + i < count; ++i)
      for (int n = 0; n < N; ++n) totals[i] += parts[n] * load(keys.at(whole + i) + n * LANES);
    store_sums(out + whole, totals);
  }

  template <class Values>
  static void mix(const float* weights, Values values, int count, int, float* out) {
    Vec totals[2][N] = {};
    int slot = 0;
    for (; slot + 2 <= count; slot += 2)
      for (int i = 0; i < 2; ++i)
        for (int n = 0; n < N; ++n)
          totals[i][n] += splat(weights[slot + i]) * load(values.at(slot + i) + n * LANES);
    for (int n = 0; n < N; ++n) {
      if (slot < count) totals[0][n] += splat(weights[slot]) * load(values.at(slot) + n * LANES);
      store(out + n * LANES, totals[0][n] + totals[1][n]);
    }
  }
};

template <class Sums, class AnySlots>
static inline void attend_with(const float* query, float scale, AnySlots keys, AnySlots values,
                               int count, const float* mask, int dim, float* scores, float* out) {
  Sums::scores(query, keys, count, dim, scores);
  if (mask) {
    for (int slot = 0; slot < count; ++slot) scores[slot] = scale * scores[slot] + mask[slot];
    scale = 1;
  }
  const Vec share = splat(1.0f / exponentials(scores, count, scale).sum);
  for (int slot = 0; slot < count; slot += LANES) store(scores + slot, load(scores + slot) * share);
  Sums::mix(scores, values, count, dim, out);
}

// out = softmax(scale * query · keys + mask) · values, over the slots 0 … count-1.
// mask: (count) added to the scores, or null. scores: scratch, count rounded up to LANES.
template <class AnySlots>
static inline void attend(const float* query, float scale, AnySlots keys, AnySlots values,
                          int count, const float* mask, int dim, float* scores, float* out) {
  switch (dim % LANES ? 0 : dim / LANES) {
    case 1: return attend_with<Head<1>>(query, scale, keys, values, count, mask, dim, scores, out);
    case 2: return attend_with<Head<2>>(query, scale, keys, values, count, mask, dim, scores, out);
    case 4: return attend_with<Head<4>>(query, scale, keys, values, count, mask, dim, scores, out);
    case 8: return attend_with<Head<8>>(query, scale, keys, values, count, mask, dim, scores, out);
    default: return attend_with<AnyHead>(query, scale, keys, values, count, mask, dim, scores, out);
  }
}

}  // namespace native
