// Lines on stderr for what is said before, or without, the engine and its log.
#pragma once

namespace shunt::preload {

// Writes "nccl-shunt: " and the parts as one line, by one system call: other ranks share this
// stderr.
void report(const char* a, const char* b = "", const char* c = "", const char* d = "");

}  // namespace shunt::preload
