// States of a decoder that are recorded while it decodes.
#pragma once

#include <algorithm>

#include "interface.h"

namespace native {

// Records a state, (dim), while there is room.
static inline void record_state(StateSampleCall& sample, const float* state, int dim) {
  if (sample.count < sample.room)
    std::copy_n(state, dim, sample.states + size_t(sample.count++) * dim);
}

}  // namespace native
