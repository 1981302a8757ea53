// Which record a request is for, as in YCSB: B. Cooper, A. Silberstein, E. Tam, R. Ramakrishnan, R. Sears: Benchmarking
// Cloud Serving Systems with YCSB, SoCC 2010.
#pragma once

#include <cstdint>

#include "value.h"

namespace drive {

// Ranks from 0 to below n, rank r as often as 1/(r+1)^0.99 says: the method of J. Gray et al., Quickly Generating
// Billion-Record Synthetic Databases, SIGMOD 1994, which YCSB names.
class Zipf {
 public:
  explicit Zipf(uint64_t n);
  uint64_t Rank(Random& random) const;
  // The same popularity, spread over all of the numbers: popular records are not neighbours.
  uint64_t Scrambled(Random& random) const { return Mixed(Rank(random)) % n_; }

 private:
  uint64_t n_;
  double zeta_n_;
  double zeta_2_;
  double alpha_;
  double eta_;
};

}  // namespace drive
