// Draws from a distribution, or from the most probable part of it. The reference on PyTorch's
// operators is sampling.py.
#pragma once

#include <algorithm>
#include <cmath>

#include "decoding/noise.h"
#include "vocab/best.h"

namespace native {

static inline bool draws(const Sampling& sampling) { return sampling.keys != nullptr; }

// Scores become those of fairseq's --temperature.
static inline void cool(float* values, int count, float temperature) {
  if (temperature == 1.0f) return;
  for (int i = 0; i < count; ++i) values[i] /= temperature;
}

// The draw of one position of one row.
class Draw {
 public:
  // ahead: positions behind the newest token of the row.
  Draw(const Sampling& sampling, int row, int ahead)
      : sampling_(sampling), noise_(sampling.keys[row], sampling.lengths[row] + ahead) {}

  // The index of the symbol that is drawn. values: (count) cooled scores, -inf where a symbol may
  // not be chosen. symbols: (count) their numbers; null: 0, 1, … normaliser: log Σ exp of the
  // scores of all symbols; it is read with top-p.
  int from(const float* values, int count, float normaliser, const int* symbols = nullptr) const {
    // The cut leaves the scores from some score on. What lies below a score outside is outside too.
    float below = MINUS_INFINITY;
    for (;;) {
      const int drawn = greatest_noisy(values, count, symbols, below);
      if (inside(values, count, values[drawn], normaliser)) return drawn;
      below = values[drawn];
    }
  }

  // Cools and adds noise to the scores of some symbols, at most LANES.
  void operator()(const int* symbols, float* scores, int count) const {
    const Vec noise = Noise::gumbel(noise_.uniform(part(symbols, count)));
    for (int i = 0; i < count; ++i) scores[i] = scores[i] / sampling_.temperature + noise[i];
  }

 private:
  const Sampling& sampling_;
  const Noise noise_;

  // The index of the greatest noisy score among the scores above `below`.
  int greatest_noisy(const float* values, int count, const int* symbols, float below) const {
    float most = MINUS_INFINITY;
    int found = 0;
    for (int first = 0; first < count; first += LANES) {
      const int lanes = std::min(LANES, count - first);
      const Vec scores = part(values + first, lanes);
      const Vec uniform =
          noise_.uniform(symbols ? part(symbols + first, lanes) : symbols_from(first));
      if (hopeless(scores, uniform, most)) continue;
      const Vec noisy = scores + Noise::gumbel(uniform);
      for (int lane = 0; lane < lanes; ++lane) {
        if (!(noisy[lane] > most && scores[lane] > below)) continue;
        most = noisy[lane];
        found = first + lane;
      }
    }
    return found;
  }

  // Whether no score can exceed `most` with its noise. Noise of more than x needs a uniform number
  // of less than e^-x.
  static bool hopeless(Vec scores, Vec uniform, float most) {
    if (most == MINUS_INFINITY) return false;
    const float rounding = 1.0001f;
    const Vec needed = exponential(smaller(scores - splat(most), splat(0))) * splat(rounding);
    return sum(uniform <= needed) == 0;
  }

  bool inside(const float* values, int count, float score, float normaliser) const {
    if (sampling_.top_k > 0 && count_above(values, count, score) >= sampling_.top_k) return false;
    return sampling_.top_p <= 0 || mass_above(values, count, score, normaliser) < sampling_.top_p;
  }

  // The probability of the scores above one.
  static float mass_above(const float* values, int count, float score, float normaliser) {
    Vec total = Vec{};
    for (int first = 0; first < count; first += LANES) {
      const Vec scores = part(values + first, std::min(LANES, count - first));
      const Vec above = scores > splat(score) ? scores : splat(MINUS_INFINITY);
      total += exponential(above - splat(normaliser));
    }
    return sum(total);
  }

  static Vec part(const float* values, int lanes) {
    if (lanes == LANES) return load(values);
    Vec found = splat(MINUS_INFINITY);
    for (int lane = 0; lane < lanes; ++lane) found[lane] = values[lane];
    return found;
  }

  static Naturals part(const int* symbols, int lanes) {
    Naturals found = Naturals{};
    for (int lane = 0; lane < lanes; ++lane) found[lane] = uint32_t(symbols[lane]);
    return found;
  }
};

}  // namespace native
