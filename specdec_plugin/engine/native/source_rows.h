// Cross-attention keys and values of the sentences that a worker decodes.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/native/linear.h"
#include "engine/native/room.h"

namespace native {

// They are computed when a sentence is begun, and its row is another one's later. So a batch of any
// size takes room for few sentences, which stays near the processor.
class SourceRows {
 public:
  // Before a batch. linear: makes keys and values. call: the sources of its sentences, without a
  // result. rows: sentences at once.
  void begin(const Linear& linear, const SourceKvCall& call, int rows) {
    linear_ = &linear;
    call_ = &call;
    longest_ = 0;
    for (int row = 0; row < call.rows; ++row) longest_ = std::max(longest_, length_of(row));
    const size_t size = size_t(rows) * stride();
    if (size > size_) {
      store_ = Scratch<float>();  // is freed before more is asked for
      store_ = Scratch<float>(size);
      size_ = size;
    }
    lengths_.assign(rows, 0);
  }

  // Computes what belongs to a sentence, in this row.
  void load(int64_t sentence, int64_t row, int threads) {
    const int64_t length = length_of(sentence), starts[] = {0, length};
    SourceKvCall one = *call_;
    one.inputs += size_t(sentence) * one.stride * linear_->inputs;
    one.rows = 1;
    one.begins += sentence;
    one.starts = starts;
    one.out = store_.get() + size_t(row) * stride();
    source_kv_.prepare({linear_, &one}, 0, 1, threads);
    parallel(threads, [&](const Team& team) { source_kv_.run(team); });
    lengths_[row] = length;
  }

  // Lets `call` read all rows.
  void describe(StackCall& call) const {
    call.source_kv = store_.get();
    call.source_stride = int64_t(stride());
    call.source_length = int(longest_);
    call.source_lengths = lengths_.data();
  }

 private:
  const Linear* linear_ = nullptr;
  const SourceKvCall* call_ = nullptr;
  SourceKv source_kv_;
  Scratch<float> store_;  // (rows, stride): each (layers, 2, heads, length, head dim)
  size_t size_ = 0;
  int64_t longest_ = 0;
  std::vector<int64_t> lengths_;  // (rows)

  int64_t length_of(int64_t sentence) const {
    return call_->starts[sentence + 1] - call_->starts[sentence];
  }

  size_t stride() const { return size_t(longest_) * linear_->outputs; }
};

}  // namespace native
