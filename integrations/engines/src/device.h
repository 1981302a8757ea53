// A look at a device through the C library.
#pragma once

#include <string>

namespace drive {

// What the device of a target counts, as the JSON object of docs/OBSERVABILITY.md; empty if it cannot be asked. A
// device that an engine's plug-in has opened in this process is that one, for both have the same C library.
std::string DeviceCounters(const std::string& target);

}  // namespace drive
