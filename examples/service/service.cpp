// A service with threads: several of them call one model at once, each with memory of its own, and the latency of every
// call is kept.
//
//   service FOLDER THREADS CALLS ROWS
//
// reads sample.bin and expected.bin from the folder, checks every result, and prints calls per second and percentiles.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "libscores.hpp"

using Model = tilewright::lib::scores;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kWidth = 128, kClasses = 10, kMostRows = 32;

static std::vector<float> read(const std::string& path, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size() * sizeof(float))))
    throw std::runtime_error("cannot read " + path);
  return out;
}

struct Served {
  std::vector<double> microseconds;
  long wrong = 0;
  std::string failure;
};

static void serve(const Model& model, const std::vector<float>& sample, const std::vector<float>& expected, int calls,
                  std::int64_t rows, Served& served) {
  try {
    Model::workspace_type memory;  // one for each thread: no call asks for memory
    std::vector<float> scores(static_cast<std::size_t>(rows * kClasses));
    for (int call = 0; call < calls; call++) {
      std::int64_t first = call % (kMostRows - rows + 1);  // views of other rows of the sample, which is not copied
      auto before = Clock::now();
      model({sample.data() + first * kWidth, {rows, kWidth}}, {scores.data(), {rows, kClasses}}, &memory);
      served.microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
      for (std::size_t i = 0; i < scores.size(); i++)
        if (!(std::abs(scores[i] - expected[static_cast<std::size_t>(first * kClasses) + i]) < 1e-5f)) served.wrong++;
    }
  } catch (const std::exception& error) {
    served.failure = error.what();
  }
}

static double percentile(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

int main(int count, char** words) {
  if (count != 5) return std::fprintf(stderr, "service FOLDER THREADS CALLS ROWS\n"), 2;
  const std::string folder = words[1];
  const int threads = std::atoi(words[2]), calls = std::atoi(words[3]);
  const std::int64_t rows = std::atoll(words[4]);
  if (threads < 1 || calls < 1 || rows < 1 || rows > kMostRows) return std::fprintf(stderr, "ROWS is 1 to 32\n"), 2;
  try {
    const Model model;  // no state: all threads call this one
    const auto sample = read(folder + "/sample.bin", kMostRows * kWidth);
    const auto expected = read(folder + "/expected.bin", kMostRows * kClasses);
    std::vector<Served> served(static_cast<std::size_t>(threads));
    std::vector<std::thread> workers;
    const auto start = Clock::now();
    for (auto& own : served)
      workers.emplace_back([&] { serve(model, sample, expected, calls, rows, own); });
    for (auto& worker : workers) worker.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::vector<double> all;
    long wrong = 0;
    for (const auto& own : served) {
      if (!own.failure.empty()) throw std::runtime_error(own.failure);
      all.insert(all.end(), own.microseconds.begin(), own.microseconds.end());
      wrong += own.wrong;
    }
    std::sort(all.begin(), all.end());
    std::printf("%d threads, %zu calls of %lld rows, %ld wrong: %.0f calls/s, p50 %.1f us, p99 %.1f us, worst %.1f us\n",
                threads, all.size(), static_cast<long long>(rows), wrong, static_cast<double>(all.size()) / seconds,
                percentile(all, 0.50), percentile(all, 0.99), all.back());
    return wrong != 0;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
