// From vocabulary scores to what an iteration adds to each row; the same as `judge` of
// specdec_plugin/decoding/acceptance.py, which is the reference.
#pragma once

#include "team.h"
#include "vector.h"

namespace native {

// The first of the greatest of values[0 … count).
static inline int argmax(const float* values, int count) {
  const float greatest = greatest_of(values, count);
  for (int i = 0; i < count; ++i)
    if (values[i] == greatest) return i;
  return 0;  // nothing but NaN
}

static inline int count_above(const float* values, int count, float bound) {
  Ints above = Ints{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) above -= load(values + i) > splat(bound);
  int total = 0;
  for (int lane = 0; lane < LANES; ++lane) total += above[lane];
  for (; i < count; ++i) total += values[i] > bound;
  return total;
}

struct Judgement {
  int rows, drafted, vocabulary;
  const float* values;       // (rows, drafted + 1, vocabulary), limits applied
  const float* normalisers;  // (rows, drafted + 1)
  const int64_t* draft;      // (rows, drafted)
  const int64_t* lengths;    // (rows) tokens that each row drafted
  const uint8_t* agrees;     // (rows, drafted) the rule's word; null: β and τ decide
  int beta;
  float tolerance;
  int64_t eos;
  int64_t* tokens;  // (rows, drafted + 1) what is added; rubbish beyond `counts`
  float* scores;    // (rows, drafted + 1) their log-probabilities
  int64_t* counts;  // (rows) how many are added
  int64_t* kept;    // (rows) how many of them were drafted
  int64_t* ended;   // (rows) 1 where the last one ends the sentence

  void run(const Team& team) const {
    for (int row = team.begin(rows); row < team.end(rows); ++row) judge(row);
  }

 private:
  const float* at(int row, int place) const {
    return values + (size_t(row) * (drafted + 1) + place) * vocabulary;
  }

  bool stands(int row, int place) const {
    if (agrees) return agrees[size_t(row) * drafted + place] != 0;
    const int64_t token = draft[size_t(row) * drafted + place];
    const float* own = at(row, place);
    if (beta == 1) return argmax(own, vocabulary) == token;
    const float best = greatest_of(own, vocabulary);
    return std::isfinite(own[token]) && best - own[token] <= tolerance &&
           count_above(own, vocabulary, own[token]) < beta;
  }

  void judge(int row) const {
    const size_t first = size_t(row) * (drafted + 1);
    int place = 0;
    bool over = false;
    for (; !over && place < lengths[row] && stands(row, place); ++place) {
      add(first + place, draft[size_t(row) * drafted + place], at(row, place));
      over = tokens[first + place] == eos;
    }
    kept[row] = counts[row] = place;
    if (!over) {
      add(first + place, argmax(at(row, place), vocabulary), at(row, place));
      over = tokens[first + place] == eos;
      counts[row] = place + 1;
    }
    ended[row] = over;
  }

  void add(size_t place, int64_t token, const float* own) const {
    tokens[place] = token;
    scores[place] = own[token] - normalisers[place];
  }
};

}  // namespace native
