// Self-attention keys and values of a worker's rows.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/native/room.h"
#include "engine/native/stack.h"

namespace native {

class RowCache {
 public:
  // Makes room for `slots` slots in each of `rows` rows, and points `call` there. What was stored
  // stays, unless there are more or fewer rows, layers or heads than before. most: slots that the
  // batch may need.
  void fit(StackCall& call, const Stack& stack, int rows, int slots, int most) {
    const size_t lines = stack.layers.size() * 2 * rows * stack.heads;
    const int head_dim = stack.dim / stack.heads;
    if (lines != lines_ || head_dim != head_dim_) capacity_ = 0;
    lines_ = lines;
    head_dim_ = head_dim;
    if (slots > capacity_) grow(slots, most);
    call.cache = store_.get();
    call.capacity = capacity_;
    call.total_rows = rows;
    call.by_head = 1;
  }

 private:
  // Room for a batch's longest row is made at once where it is no more than this. A cache that
  // grows is copied, and the memory of a long run would rise with chance: who meets the longest
  // sentence.
  static constexpr size_t AT_ONCE = size_t(64) << 20;
  static constexpr int LEAST = 64;

  Scratch<float> store_;  // (layers, 2, rows, heads, capacity, head dim)
  size_t lines_ = 0;      // layers * 2 * rows * heads
  int head_dim_ = 0, capacity_ = 0;

  void grow(int slots, int most) {
    const int fitting = int(AT_ONCE / sizeof(float) / (lines_ * head_dim_));
    const int capacity = std::max(slots, std::min(most, std::max({fitting, 2 * capacity_, LEAST})));
    const size_t old = size_t(capacity_) * head_dim_, line_size = size_t(capacity) * head_dim_;
    Scratch<float> store(lines_ * line_size);
    for (size_t line = 0; line < lines_; ++line)
      std::copy_n(store_.get() + line * old, old, store.get() + line * line_size);
    store_ = std::move(store);
    capacity_ = capacity;
  }
};

}  // namespace native
