#include "arguments.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

namespace drive {

void Usage(const std::string& why) {
  std::fprintf(stderr, "%s (see integrations/engines/src/arguments.h for what can be given)\n", why.c_str());
  std::exit(2);
}

namespace {

uint64_t Number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || text[0] == '-') Usage(name + " takes a number, not " + text);
  return value;
}

bool OnOff(const std::string& name, const std::string& text) {
  if (text != "on" && text != "off") Usage(name + " takes on or off, not " + text);
  return text == "on";
}

}  // namespace

Arguments Arguments::Parse(int argc, char** argv) {
  Arguments a;
  using Text = const std::string&;
  const std::map<std::string, std::function<void(Text, Text)>> known = {
      {"--target", [&](Text, Text v) { a.target = v; }},
      {"--db", [&](Text, Text v) { a.db = v; }},
      {"--workload", [&](Text, Text v) { a.workload = v; }},
      {"--keys", [&](Text n, Text v) { a.keys = Number(n, v); }},
      {"--value-size", [&](Text n, Text v) { a.value_size = Number(n, v); }},
      {"--threads", [&](Text n, Text v) { a.threads = Number(n, v); }},
      {"--operations", [&](Text n, Text v) { a.operations = Number(n, v); }},
      {"--milliseconds", [&](Text n, Text v) { a.seconds = static_cast<double>(Number(n, v)) / 1e3; }},
      {"--sync", [&](Text n, Text v) { a.sync = OnOff(n, v); }},
      {"--cache", [&](Text n, Text v) { a.cache = Number(n, v); }},
      {"--seed", [&](Text n, Text v) { a.seed = Number(n, v); }},
      {"--warm", [&](Text n, Text v) { a.warm = OnOff(n, v); }},
      {"--handoff", [&](Text n, Text v) { a.handoff = OnOff(n, v); }},
      {"--journal", [&](Text, Text v) { a.journal = v; }},
      {"--extension", [&](Text, Text v) { a.extension = v; }},
      {"--progress", [&](Text n, Text v) { a.progress = OnOff(n, v); }},
      {"--handshake", [&](Text n, Text v) { a.handshake = OnOff(n, v); }},
  };
  for (int i = 1; i < argc; i += 2) {
    const auto found = known.find(argv[i]);
    if (found == known.end()) Usage(std::string("unknown argument ") + argv[i]);
    if (i + 1 == argc) Usage(std::string(argv[i]) + " takes a value");
    found->second(argv[i], argv[i + 1]);
  }
  if (a.db.empty() || a.workload.empty()) Usage("--db and --workload are needed");
  if (a.keys == 0 || a.threads == 0) Usage("there is no work without keys and threads");
  if (a.operations == 0 && a.seconds == 0) a.operations = a.keys;
  return a;
}

}  // namespace drive
