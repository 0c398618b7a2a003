// An encoder run for rows of different lengths, without padding.
#pragma once

#include "engine/native/stack.h"

namespace native {

// Rows of one length.
class RowsOfOneLength {
 public:
  static constexpr int INPUTS = 256;  // at once, so that they stay in the nearer caches

  struct Group {
    int first, count;  // in the order of the call
  };
  struct Groups {
    const Stack* stack;
    const EncodeCall* call;
    std::vector<Group> all;

    // Those of a length that are taken at once; threads share them, if several are there.
    Groups(const Stack& stack, const EncodeCall& call, int threads) : stack(&stack), call(&call) {
      const int share = std::max(1, call.rows / threads);
      for (int first = 0; first < call.rows;) {
        const int64_t length = call.lengths[call.order[first]];
        const int most = std::min(share, std::max(1, INPUTS / std::max(1, int(length))));
        int count = 1;
        while (count < most && first + count < call.rows &&
               call.lengths[call.order[first + count]] == length)
          ++count;
        all.push_back({first, count});
        first += count;
      }
    }
  };

  void prepare(const Groups& groups, int index, int, int threads) {
    call_ = groups.call;
    group_ = groups.all[index];
    dim_ = groups.stack->dim;
    const int width = int(call_->lengths[call_->order[group_.first]]);
    tokens_.resize(size_t(group_.count) * width);
    out_.resize(tokens_.size() * dim_);
    for (int i = 0; i < group_.count; ++i)
      std::copy_n(call_->tokens + row(i) * call_->stride + call_->starts[row(i)], width,
                  &tokens_[size_t(i) * width]);
    inputs_ = StackCall();
    inputs_.rows = group_.count;
    inputs_.width = inputs_.token_stride = width;
    inputs_.tokens = tokens_.data();
    inputs_.positions = call_->positions;
    inputs_.position_limit = call_->position_limit;
    inputs_.out = out_.data();
    pass_.prepare(*groups.stack, inputs_, threads);
  }

  void run(const Team& team) {
    pass_.run(team, inputs_);
    team.wait();
    const size_t size = size_t(inputs_.width) * dim_;
    for (int i = team.begin(group_.count); i < team.end(group_.count); ++i)
      std::copy_n(&out_[i * size], size, call_->out + call_->places[row(i)] * dim_);
  }

 private:
  const EncodeCall* call_;
  Group group_;
  int dim_;
  Pass pass_;
  StackCall inputs_;
  std::vector<int64_t> tokens_;
  Aligned<float> out_;

  int64_t row(int i) const { return call_->order[group_.first + i]; }
};

extern "C" void encode_run(const Stack* stack, const EncodeCall* call, int threads) {
  const RowsOfOneLength::Groups groups(*stack, *call, threads);
  in_parts<RowsOfOneLength>(groups, int(groups.all.size()), 1, threads);
}

}  // namespace native
