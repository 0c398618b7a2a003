// An encoder run for rows of different lengths, without padding.
#pragma once

#include <numeric>

#include "engine/native/stack.h"

namespace native {

// Rows that go through the encoder together, which reads its weights once for all of them.
class EncoderRows {
 public:
  static constexpr int INPUTS = 256;  // at once, so that they stay in the nearer caches

  struct Groups {
    const Stack* stack;
    const EncodeCall* call;
    std::vector<std::vector<int64_t>> rows;  // of each group

    // As few of them as are small enough and keep all threads busy. The longest rows come first,
    // and each one joins the group that has the fewest symbols.
    Groups(const Stack& stack, const EncodeCall& call, int threads) : stack(&stack), call(&call) {
      const int64_t total = std::accumulate(call.lengths, call.lengths + call.rows, int64_t(0));
      const int64_t most = int64_t(INPUTS) * threads, times = (total + most - 1) / most;
      rows.resize(std::clamp<int64_t>(threads * times, 1, call.rows));
      std::vector<int64_t> inputs(rows.size());
      for (int i = 0; i < call.rows; ++i) {
        const size_t least = std::min_element(inputs.begin(), inputs.end()) - inputs.begin();
        rows[least].push_back(call.order[i]);
        inputs[least] += call.lengths[call.order[i]];
      }
    }
  };

  void prepare(const Groups& groups, int index, int, int threads) {
    call_ = groups.call;
    rows_ = groups.rows[index].data();
    dim_ = groups.stack->dim;
    inputs_ = StackCall();
    inputs_.rows = int(groups.rows[index].size());
    inputs_.width = int(call_->lengths[rows_[0]]);
    firsts_.assign(1, 0);
    tokens_.clear();
    for (int i = 0; i < inputs_.rows; ++i) {
      const int64_t* tokens = call_->tokens + rows_[i] * call_->stride + call_->starts[rows_[i]];
      tokens_.insert(tokens_.end(), tokens, tokens + call_->lengths[rows_[i]]);
      firsts_.push_back(int64_t(tokens_.size()));
    }
    out_.resize(tokens_.size() * dim_);
    inputs_.firsts = firsts_.data();
    inputs_.tokens = tokens_.data();
    inputs_.positions = call_->positions;
    inputs_.position_limit = call_->position_limit;
    inputs_.out = out_.data();
    pass_.prepare(*groups.stack, inputs_, threads);
  }

  void run(const Team& team) {
    pass_.run(team, inputs_);
    team.wait();
    for (int i = team.begin(inputs_.rows); i < team.end(inputs_.rows); ++i)
      std::copy(out_.data() + firsts_[i] * dim_, out_.data() + firsts_[i + 1] * dim_,
                call_->out + call_->places[rows_[i]] * dim_);
  }

 private:
  const EncodeCall* call_;
  const int64_t* rows_;  // the longest first
  int dim_;
  Pass pass_;
  StackCall inputs_;
  std::vector<int64_t> tokens_, firsts_;
  Aligned<float> out_;
};

extern "C" void encode_run(const Stack* stack, const EncodeCall* call, int threads) {
  const EncoderRows::Groups groups(*stack, *call, threads);
  in_parts<EncoderRows>(groups, int(groups.rows.size()), 1, threads);
}

}  // namespace native
