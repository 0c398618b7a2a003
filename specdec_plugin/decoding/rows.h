// The rows of a batch that are being decoded.
#pragma once

#include <cstdint>

namespace native {

// The rows that are being decoded (specdec_plugin/decoding/state.py).
struct Rows {
  int count, room;
  int64_t* tokens;   // (count, room) the first symbol, then what is chosen
  float* scores;     // (count, room) log-probabilities of what is chosen
  int64_t* lengths;  // (count) how many are chosen
  float* states;     // (count, dim) the verifier's state that said each row's newest token; or null
  int64_t* iterate;  // (count, iterate_room) what the verifier last said of each place; or null
  int iterate_room;
};

}  // namespace native
