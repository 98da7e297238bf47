// The one record of who was called: every library and tool of these tests appends a line to the
// file that SHUNT_TRACE names, in the order of the calls and across processes.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

inline bool traced() {
  static const bool on = getenv("SHUNT_TRACE") != nullptr;
  return on;
}

inline void trace(const char* who, const char* what, const char* detail = "") {
  if (!traced()) return;
  char line[512];
  const int length = snprintf(line, sizeof line, "%s:%s%s\n", who, what, detail);
  const int file = open(getenv("SHUNT_TRACE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || write(file, line, static_cast<size_t>(length)) != length) abort();
  close(file);
}
