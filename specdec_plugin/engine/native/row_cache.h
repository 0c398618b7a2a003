// Self-attention keys and values of a worker's rows.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/native/pool.h"
#include "interface.h"

namespace native {

class RowCache {
 public:
  // Makes room for `slots` slots in each of `rows` rows, and points `call` there. What was stored
  // stays, unless there are other rows or layers than before.
  void fit(StackCall& call, int layers, int rows, int slots, int dim) {
    if (layers != layers_ || rows != rows_ || dim != dim_) capacity_ = 0;
    layers_ = layers;
    rows_ = rows;
    dim_ = dim;
    if (slots > capacity_) grow(slots);
    call.cache = store_.get();
    call.capacity = capacity_;
    call.total_rows = rows;
  }

 private:
  static constexpr int LEAST = 64;

  std::unique_ptr<float[]> store_;  // (layers, 2, rows, capacity, dim)
  int layers_ = 0, rows_ = 0, dim_ = 0, capacity_ = 0;

  void grow(int slots) {
    const int capacity = std::max({slots, 2 * capacity_, LEAST});
    const size_t lines = size_t(layers_) * 2 * rows_, old = size_t(capacity_) * dim_;
    // Not `make_unique`, which would write to all of it.
    std::unique_ptr<float[]> store(new float[lines * capacity * dim_]);
    prefer_huge_pages(store.get(), lines * capacity * dim_ * sizeof(float));
    for (size_t line = 0; line < lines; ++line)
      std::copy_n(store_.get() + line * old, old, store.get() + line * capacity * dim_);
    store_ = std::move(store);
    capacity_ = capacity;
  }
};

}  // namespace native
