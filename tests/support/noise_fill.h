// Hands the noise of the kernels to tests. The kernels themselves never store it.
#pragma once

#include "decoding/noise.h"

namespace native {

// out: (rows, symbols) the noise of every symbol at one position.
extern "C" void noise_fill(const int64_t* keys, int rows, int64_t position, int symbols,
                           float* out) {
  for (int row = 0; row < rows; ++row) {
    const Noise noise(keys[row], position);
    for (int first = 0; first < symbols; first += LANES) {
      const Vec values = Noise::gumbel(noise.uniform(symbols_from(first)));
      for (int lane = 0; lane < LANES && first + lane < symbols; ++lane)
        out[size_t(row) * symbols + first + lane] = values[lane];
    }
  }
}

}  // namespace native
