// Reading a profile's file, which somebody else may have put there.
#pragma once

#include <optional>
#include <string>

namespace shunt::tuner {

// The text of the file; nullopt: there is none. Throws std::runtime_error with the reason, one
// line, where it is no plain file, a symbolic link, of another user than this one and root,
// writable by others, larger than kMaxProfileText, or cannot be read. Never blocks on a pipe.
std::optional<std::string> read_profile_file(const std::string& path);

// Writes a new file beside `path` and renames it: a job that starts meanwhile reads the old text or
// the new one. Makes the folder. Throws std::runtime_error.
void write_profile_file(const std::string& path, const std::string& text);

}  // namespace shunt::tuner
