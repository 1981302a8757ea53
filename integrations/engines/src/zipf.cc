#include "zipf.h"

#include <algorithm>
#include <cmath>

namespace drive {

namespace {

constexpr double kTheta = 0.99;

double Zeta(uint64_t n) {
  double sum = 0;
  for (uint64_t i = 1; i <= n; i++) sum += 1.0 / std::pow(static_cast<double>(i), kTheta);
  return sum;
}

}  // namespace

Zipf::Zipf(uint64_t n) : n_(n), zeta_n_(Zeta(n)), zeta_2_(Zeta(2)), alpha_(1.0 / (1.0 - kTheta)) {
  eta_ = (1.0 - std::pow(2.0 / static_cast<double>(n), 1.0 - kTheta)) / (1.0 - zeta_2_ / zeta_n_);
}

uint64_t Zipf::Rank(Random& random) const {
  const double u = random.Share();
  const double mass = u * zeta_n_;
  if (mass < 1.0) return 0;
  if (mass < zeta_2_) return std::min<uint64_t>(1, n_ - 1);
  const double rank = static_cast<double>(n_) * std::pow(eta_ * u - eta_ + 1.0, alpha_);
  return std::min(static_cast<uint64_t>(rank), n_ - 1);
}

}  // namespace drive
